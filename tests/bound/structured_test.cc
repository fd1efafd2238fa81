// Structured products and their gradients, compared with their definition in float64.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/structured.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "support/error_of.h"
#include "support/structured_reference.h"

namespace tessera {
namespace {

using test::random_floats;

constexpr uint64_t kSeed = 3;
constexpr double kTolerance = 4e-6;

struct Setting {
  std::string name;
  std::vector<Structure> maps;
  uint32_t batch;
};

void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name << ", " << setting.batch; }

std::vector<Setting> settings() {
  const std::vector<std::pair<std::string, std::vector<Structure>>> maps = {
      {"butterfly", {Butterfly{64, 64}}},
      {"wide_butterfly", {Butterfly{100, 300}}},
      {"narrow_butterfly", {Butterfly{1000, 10}}},
      {"butterfly_of_three_blocks",
       {Butterfly{.inputs = 32, .outputs = 32, .nblocks = 3, .decreasing = true}}},
      {"tied_butterfly", {Butterfly{.inputs = 128, .outputs = 128, .tied = true}}},
      {"complex_butterfly", {Butterfly{.inputs = 32, .outputs = 40, .complex = true}}},
      {"smallest_butterfly", {Butterfly{1, 1}}},
      {"block_diagonal", {Kronecker{.a = 6, .b = 20, .c = 33}}},
      {"monarch_factor", {Kronecker{.a = 1, .b = 32, .c = 32, .d = 32}}},
      {"cut_kronecker", {Kronecker{3, 5, 7, 2, 40, 29}}},
      {"circulant", {Circulant{64}}},
      {"circulant_of_any_size", {Circulant{99, 80, 41}}},
      {"toeplitz", {Toeplitz{30, 77}}},
      {"fastfood", {test::shuffled_fastfood(64, 64)}},
      {"wide_fastfood", {test::shuffled_fastfood(27, 90)}},
      {"low_rank", {Kronecker{1, 8, 100, 1}, Kronecker{1, 37, 8, 1}}},
      {"monarch", {Kronecker{6, 7, 17, 1, 100, 42}, Kronecker{1, 9, 6, 7, 42, 60}}},
      {"butterflies_and_a_circulant",
       {Butterfly{30, 30}, Circulant{30}, Butterfly{.inputs = 30, .outputs = 70}}},
  };
  std::vector<Setting> all;
  for (const auto& [name, of] : maps)
    for (const uint32_t batch : {1U, 5U, 16U, 50U, 131U}) all.push_back({name, of, batch});
  return all;
}

/// Maps one after the other, with a bias or without, whose samples are rows or columns.
class StructuredTest : public testing::TestWithParam<std::tuple<Setting, bool, bool>> {
 protected:
  StructuredTest() {
    for (const Structure& map : maps)
      std::ranges::move(test::random_parameters(map, kSeed + parameters.size()),
                        std::back_inserter(parameters));
    expected.emplace(maps, parameters, x, dy, batch);
    if (has_bias) {
      parameters.push_back(random_floats(outputs, 99));
      std::vector<double>& sums = expected->gradients.emplace_back(outputs);
      for (size_t i = 0; i < dy.size(); ++i) {
        expected->y[i] += parameters.back()[i % outputs];
        sums[i % outputs] += dy[i];
      }
    }
    for (const auto& parameter : parameters) pointers.push_back(parameter.data());
  }
  /// Of samples as rows.
  template <class T>
  std::vector<T> in_order(const std::vector<T>& samples) const {
    return transposed ? test::transposed(samples, batch) : samples;
  }
  void expect_gradients(const test::Vectors& found) const {
    for (size_t i = 0; i < found.size(); ++i)
      test::expect_close(found[i], expected->gradients[i], kTolerance, "gradient of a parameter");
  }

  const std::vector<Structure>& maps = std::get<0>(GetParam()).maps;
  const bool has_bias = std::get<1>(GetParam()), transposed = std::get<2>(GetParam());
  const uint32_t batch = std::get<0>(GetParam()).batch, inputs = inputs_of(maps.front()),
                 outputs = outputs_of(maps.back());
  const StructuredProduct product{maps, batch, {.transposed = transposed, .threads = 2, .bias = has_bias}};
  const std::vector<float> x = random_floats(size_t{batch} * inputs, 0),
                           dy = random_floats(size_t{batch} * outputs, 1);
  test::Vectors parameters;
  std::optional<test::StructuredReference> expected;
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
  ASSERT_EQ(product.parameters().size(), parameters.size());
  std::vector<float> found(dy.size(), NAN);
  product(in_order(x).data(), pointers, found.data());
  test::expect_close(found, in_order(expected->y), kTolerance, "y");
}

TEST_P(StructuredTest, HasTheGradientsOfItsDefinition) {
  if (has_bias) pointers.back() = nullptr;  // its value does not matter
  const std::vector<float> xs = in_order(x), dys = in_order(dy);
  Gradients all(parameters), without_dx(parameters);
  std::vector<float> found(x.size(), NAN), alone(x.size(), NAN);
  product.gradients(xs.data(), dys.data(), pointers, found.data(), all.to);
  test::expect_close(found, in_order(expected->dx), kTolerance, "dx");
  expect_gradients(all.values);
  product.gradients(xs.data(), dys.data(), pointers, alone.data(), {});
  EXPECT_EQ(alone, found);
  product.gradients(xs.data(), dys.data(), pointers, nullptr, without_dx.to);
  expect_gradients(without_dx.values);
}

std::string name_of_case(const testing::TestParamInfo<StructuredTest::ParamType>& of) {
  const auto& [setting, has_bias, transposed] = of.param;
  return fmt::format("{}_{}{}{}", setting.name, setting.batch, has_bias ? "_bias" : "",
                     transposed ? "_transposed" : "");
}

INSTANTIATE_TEST_SUITE_P(Structured, StructuredTest,
                         testing::Combine(testing::ValuesIn(settings()), testing::Bool(), testing::Bool()),
                         name_of_case);

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

TEST(Structured, RefusesMapsThatDoNotMeet) {
  const auto message = [](const std::vector<Structure>& maps) {
    return test::error_of<UsageError>([&] { StructuredProduct(maps, 2); });
  };
  EXPECT_TRUE(test::says(message({}), "no maps"));
  EXPECT_TRUE(
      test::says(message({Circulant{8}, Circulant{9}}), "has 9 inputs; the one before has 8 outputs"));
  EXPECT_TRUE(test::says(message({Butterfly{.inputs = 8, .outputs = 8, .complex = true}, Circulant{8}}),
                         "has 8 inputs; the one before has 16 outputs"));
  const std::vector<Structure> maps = {Circulant{8}, Circulant{8}};
  std::vector<float> x(8), y(8);
  EXPECT_USAGE_ERROR("have 2 parameters; given are 0", StructuredProduct(maps, 1)(x.data(), {}, y.data()));
}

}  // namespace
}  // namespace tessera
