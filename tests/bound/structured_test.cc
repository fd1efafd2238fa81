// Structured products and their gradients, compared with their definition in float64.
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/structured.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "support/error_of.h"
#include "support/structured_reference.h"

namespace tessera {
namespace {

using test::random_floats;

constexpr uint64_t kSeed = 3;
constexpr double kTolerance = 4e-6;

struct Setting {
  std::string name;
  Structure structure;
  uint32_t batch;
};

void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name << ", " << setting.batch; }

std::vector<Setting> settings() {
  const std::vector<std::pair<std::string, Structure>> structures = {
      {"butterfly", Butterfly{64, 64}},
      {"wide_butterfly", Butterfly{100, 300}},
      {"narrow_butterfly", Butterfly{1000, 10}},
      {"butterfly_of_three_blocks", Butterfly{.inputs = 32, .outputs = 32, .nblocks = 3, .decreasing = true}},
      {"tied_butterfly", Butterfly{.inputs = 128, .outputs = 128, .tied = true}},
      {"complex_butterfly", Butterfly{.inputs = 32, .outputs = 40, .complex = true}},
      {"smallest_butterfly", Butterfly{1, 1}},
      {"block_diagonal", Kronecker{.a = 6, .b = 20, .c = 33}},
      {"monarch", Kronecker{.a = 1, .b = 32, .c = 32, .d = 32}},
      {"cut_kronecker", Kronecker{3, 5, 7, 2, 40, 29}},
      {"circulant", Circulant{64}},
      {"circulant_of_any_size", Circulant{99, 80, 41}},
      {"toeplitz", Toeplitz{30, 77}},
      {"fastfood", test::shuffled_fastfood(64, 64)},
      {"wide_fastfood", test::shuffled_fastfood(27, 90)},
  };
  std::vector<Setting> all;
  for (const auto& [name, structure] : structures)
    for (const uint32_t batch : {1U, 5U, 16U, 50U, 131U}) all.push_back({name, structure, batch});
  return all;
}

class StructuredTest : public testing::TestWithParam<Setting> {
 protected:
  StructuredTest() {
    for (const auto& parameter : parameters) pointers.push_back(parameter.data());
  }
  /// Of samples as rows.
  template <class T>
  std::vector<T> in_order(const std::vector<T>& samples, bool transposed) const {
    return transposed ? test::transposed(samples, batch) : samples;
  }
  void expect_gradients(const test::Vectors& found) const {
    for (size_t i = 0; i < found.size(); ++i)
      test::expect_close(found[i], expected.gradients[i], kTolerance, "gradient of a parameter");
  }

  const Structure& structure = GetParam().structure;
  const uint32_t batch = GetParam().batch, inputs = inputs_of(structure), outputs = outputs_of(structure);
  const std::vector<float> x = random_floats(size_t{batch} * inputs, 0),
                           dy = random_floats(size_t{batch} * outputs, 1);
  const test::Vectors parameters = test::random_parameters(structure, kSeed);
  const test::StructuredReference expected{{&structure, 1}, parameters, x, dy, batch};
  std::vector<const float*> pointers;
};

/// Gradients of all parameters, not yet written.
struct Gradients {
  explicit Gradients(const test::Vectors& parameters) : values(parameters) {
    for (auto& gradient : values) {
      std::ranges::fill(gradient, NAN);
      to.push_back(gradient.data());
    }
  }

  test::Vectors values;
  std::vector<float*> to;
};

TEST_P(StructuredTest, IsWhatItsDefinitionSays) {
  for (const bool transposed : {false, true}) {
    const StructuredProduct product(structure, batch, {.transposed = transposed, .threads = 2});
    std::vector<float> found(dy.size(), NAN);
    product(in_order(x, transposed).data(), pointers, found.data());
    test::expect_close(found, in_order(expected.y, transposed), kTolerance, "y");
  }
}

TEST_P(StructuredTest, HasTheGradientsOfItsDefinition) {
  for (const bool transposed : {false, true}) {
    const StructuredProduct product(structure, batch, {.transposed = transposed, .threads = 2});
    const std::vector<float> xs = in_order(x, transposed), dys = in_order(dy, transposed);
    Gradients all(parameters), without_dx(parameters);
    std::vector<float> found(x.size(), NAN), alone(x.size(), NAN);
    product.gradients(xs.data(), dys.data(), pointers, found.data(), all.to);
    test::expect_close(found, in_order(expected.dx, transposed), kTolerance, "dx");
    expect_gradients(all.values);
    product.gradients(xs.data(), dys.data(), pointers, alone.data(), {});
    EXPECT_EQ(alone, found);
    product.gradients(xs.data(), dys.data(), pointers, nullptr, without_dx.to);
    expect_gradients(without_dx.values);
  }
}

TEST_P(StructuredTest, AddsABiasAndHasItsGradient) {
  test::Vectors with_bias = parameters;
  with_bias.push_back(random_floats(outputs, 99));
  const std::vector<float>& bias = with_bias.back();
  std::vector<const float*> all = pointers;
  all.push_back(bias.data());
  std::vector<double> sum = expected.y, sums(outputs);
  for (size_t i = 0; i < sum.size(); ++i) {
    sum[i] += bias[i % outputs];
    sums[i % outputs] += dy[i];
  }
  for (const bool transposed : {false, true}) {
    const StructuredProduct product(structure, batch, {.transposed = transposed, .threads = 2, .bias = true});
    ASSERT_EQ(product.parameters().back().elements(), outputs);
    const std::vector<float> xs = in_order(x, transposed), dys = in_order(dy, transposed);
    std::vector<float> y(dy.size(), NAN), dx(x.size(), NAN);
    product(xs.data(), all, y.data());
    test::expect_close(y, in_order(sum, transposed), kTolerance, "y");

    Gradients gradients(with_bias);
    std::vector<const float*> without_value = pointers;
    without_value.push_back(nullptr);  // it does not matter
    product.gradients(xs.data(), dys.data(), without_value, dx.data(), gradients.to);
    test::expect_close(dx, in_order(expected.dx, transposed), kTolerance, "dx");
    test::expect_close(gradients.values.back(), sums, kTolerance, "gradient of the bias");
    gradients.values.pop_back();
    expect_gradients(gradients.values);
  }
}

INSTANTIATE_TEST_SUITE_P(Structured, StructuredTest, testing::ValuesIn(settings()),
                         [](const auto& of) { return of.param.name + "_" + std::to_string(of.param.batch); });

TEST(Structured, HasTheShapesOfThePublicImplementations) {
  const auto shape_of = [](const Structure& structure, size_t i = 0) {
    return parameters_of(structure)[i].shape;
  };
  using Shape = std::vector<uint32_t>;
  EXPECT_EQ(shape_of(Butterfly{.inputs = 1000, .outputs = 2050, .nblocks = 2}), (Shape{3, 2, 10, 512, 2, 2}));
  EXPECT_EQ(shape_of(Butterfly{.inputs = 1024, .outputs = 1024, .tied = true}), (Shape{1, 1023, 2, 2}));
  EXPECT_EQ(shape_of(Butterfly{.inputs = 8, .outputs = 8, .complex = true}), (Shape{1, 1, 3, 4, 2, 2, 2}));
  EXPECT_EQ(shape_of(Kronecker{4, 8, 16, 2}), (Shape{4, 2, 8, 16}));
  EXPECT_EQ(shape_of(Toeplitz{10, 20}), (Shape{29}));
}

TEST(Structured, RefusesImpossibleSizes) {
  const auto message = [](const Structure& structure, uint32_t batch = 4) {
    return test::error_of<UsageError>([&] { StructuredProduct(structure, batch); });
  };
  EXPECT_TRUE(test::says(message(Butterfly{0, 4}), "inputs is 0"));
  EXPECT_TRUE(
      test::says(message(Butterfly{.inputs = 4, .outputs = 4, .nblocks = 2, .tied = true}), "one block"));
  EXPECT_TRUE(test::says(message(Kronecker{2, 3, 4, 1, 9}), "1 to 8"));
  EXPECT_TRUE(test::says(message(Kronecker{1 << 20, 1 << 20, 4, 1}), "too large"));
  EXPECT_TRUE(test::says(message(Circulant{8, 9}), "1 to 8"));
  EXPECT_TRUE(test::says(message(Fastfood{4, 4, {0, 1, 1, 3}}), "there already"));
  EXPECT_TRUE(test::says(message(Fastfood{4, 4, {0, 1, 2, 4}}), "too large"));
  EXPECT_TRUE(test::says(message(Fastfood{4, 4, {0}}), "1 × 4 are needed"));
  EXPECT_TRUE(test::says(message(Circulant{8}, 0), "no samples"));
}

TEST(Structured, HasAtMostTwoToThe24Features) {
  constexpr uint32_t kMost = 1U << 24;
  const auto largest = [](uint32_t size) {
    return std::vector<Structure>{Butterfly{size, 1}, Butterfly{1, size}, Circulant{size, 1, 1},
                                  Toeplitz{size, 1}, Toeplitz{1, size}};
  };
  for (const Structure& structure : largest(kMost)) EXPECT_NO_THROW(parameters_of(structure));
  for (const Structure& structure : largest(kMost + 1))
    EXPECT_USAGE_ERROR("1 to 16777216", parameters_of(structure));
}

TEST(Structured, RefusesMissingArrays) {
  const StructuredProduct product(Circulant{8}, 2);
  std::vector<float> x(16), c(8);
  const float* parameters[] = {c.data()};
  const float* missing[] = {nullptr};
  const auto message = [](const auto& call) { return test::error_of<UsageError>(call); };
  EXPECT_TRUE(test::says(message([&] { product(nullptr, parameters, x.data()); }), "x is null"));
  EXPECT_TRUE(test::says(message([&] { product(x.data(), missing, x.data()); }), "c is null"));
  EXPECT_TRUE(test::says(message([&] { product(x.data(), {}, x.data()); }), "1 parameters"));
}

}  // namespace
}  // namespace tessera
