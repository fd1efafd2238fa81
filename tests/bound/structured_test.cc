// Structured products and their gradients, compared with their definition in float64.
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/structured.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>

#include "base/random.h"
#include "ops/structured/definition.h"
#include "support/error_of.h"

namespace tessera {
namespace {

constexpr uint64_t kSeed = 3;

struct Setting {
  std::string name;
  Structure structure;
  uint32_t batch;
};

void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name << ", " << setting.batch; }

std::vector<uint32_t> shuffled(uint32_t size, uint32_t stacks) {
  std::vector<uint32_t> places(size * stacks);
  for (uint32_t i = 0; i < places.size(); ++i) places[i] = (5 * i + 3 + i / size) % size;
  return places;
}

std::vector<Setting> settings() {
  const std::vector<std::pair<std::string, Structure>> structures = {
      {"butterfly", Butterfly{64, 64}},
      {"wide_butterfly", Butterfly{100, 300}},
      {"narrow_butterfly", Butterfly{1000, 10}},
      {"butterfly_of_three_blocks", Butterfly{.inputs = 32, .outputs = 32, .blocks = 3, .decreasing = true}},
      {"tied_butterfly", Butterfly{.inputs = 128, .outputs = 128, .tied = true}},
      {"complex_butterfly", Butterfly{.inputs = 32, .outputs = 40, .complex = true}},
      {"smallest_butterfly", Butterfly{1, 1}},
      {"block_diagonal", Kronecker{.a = 6, .b = 20, .c = 33}},
      {"monarch", Kronecker{.a = 1, .b = 32, .c = 32, .d = 32}},
      {"cut_kronecker", Kronecker{3, 5, 7, 2, 40, 29}},
      {"circulant", Circulant{64}},
      {"circulant_of_any_size", Circulant{99, 80, 41}},
      {"toeplitz", Toeplitz{30, 77}},
      {"fastfood", Fastfood{64, 64, shuffled(64, 1)}},
      {"wide_fastfood", Fastfood{27, 90, shuffled(32, 3)}},
  };
  std::vector<Setting> all;
  for (const auto& [name, structure] : structures)
    for (const uint32_t batch : {1U, 5U, 16U, 50U, 131U}) all.push_back({name, structure, batch});
  return all;
}

std::vector<float> random_floats(size_t count, uint32_t stream) {
  std::vector<float> floats(count);
  base::RandomStream(kSeed, 0, stream).fill_symmetric(floats);
  return floats;
}

/// [batch, features], or the transpose of that.
struct Samples {
  Samples(std::vector<float> of, uint32_t batch_size, uint32_t feature_count)
      : values(std::move(of)), batch(batch_size), features(feature_count) {}

  std::vector<float> in_order(bool transposed) const {
    if (!transposed) return values;
    std::vector<float> other(values.size());
    for (uint32_t i = 0; i < batch; ++i)
      for (uint32_t f = 0; f < features; ++f) other[size_t{f} * batch + i] = values[size_t{i} * features + f];
    return other;
  }
  std::vector<double> sample(uint32_t i) const {
    const auto begin = values.begin() + int64_t{i} * features;
    return {begin, begin + features};
  }

  std::vector<float> values;
  uint32_t batch;
  uint32_t features;
};

void expect_near(std::span<const float> found, std::span<const float> expected, const char* what) {
  ASSERT_EQ(found.size(), expected.size());
  double most = 0;
  for (const float value : expected) most = std::max(most, std::abs(double{value}));
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], 4e-6 * most) << what << ", element " << i;
}

/// `expected`: those of all parameters, one after another.
void expect_parameter_gradients(const std::vector<std::vector<float>>& found,
                                std::span<const double> expected) {
  for (size_t i = 0; i < found.size(); ++i) {
    const auto own = expected.first(found[i].size());
    expect_near(found[i], std::vector<float>(own.begin(), own.end()), "gradient of a parameter");
    expected = expected.subspan(found[i].size());
  }
}

class StructuredTest : public testing::TestWithParam<Setting> {
 protected:
  StructuredTest()
      : stages(ops::stages_of(GetParam().structure)),
        batch(GetParam().batch),
        inputs(inputs_of(GetParam().structure)),
        outputs(outputs_of(GetParam().structure)),
        x(random_floats(size_t{batch} * inputs, 0), batch, inputs),
        dy(random_floats(size_t{batch} * outputs, 1), batch, outputs) {
    for (const StructuredParameter& parameter : parameters_of(GetParam().structure)) {
      parameters.push_back(random_floats(parameter.elements(), static_cast<uint32_t>(2 + parameters.size())));
      all.insert(all.end(), parameters.back().begin(), parameters.back().end());
    }
    for (const auto& parameter : parameters) pointers.push_back(parameter.data());
  }

  const std::vector<ops::StructuredStage> stages;
  const uint32_t batch, inputs, outputs;
  const Samples x, dy;
  std::vector<std::vector<float>> parameters;
  std::vector<const float*> pointers;
  std::vector<double> all;
};

TEST_P(StructuredTest, IsWhatItsDefinitionSays) {
  Samples y({}, batch, outputs);
  for (uint32_t i = 0; i < batch; ++i) {
    const auto vectors = ops::apply_stages(stages, all, x.sample(i));
    y.values.insert(y.values.end(), vectors.back().begin(), vectors.back().end());
  }
  for (const bool transposed : {false, true}) {
    const StructuredProduct product(GetParam().structure, batch, {.transposed = transposed, .threads = 2});
    std::vector<float> found(y.values.size(), NAN);
    product(x.in_order(transposed).data(), pointers, found.data());
    expect_near(found, y.in_order(transposed), "y");
  }
}

TEST_P(StructuredTest, HasTheGradientsOfItsDefinition) {
  Samples dx({}, batch, inputs);
  std::vector<double> dparameters(all.size());
  for (uint32_t i = 0; i < batch; ++i) {
    const auto vectors = ops::apply_stages(stages, all, x.sample(i));
    const auto of_sample = ops::differentiate_stages(stages, all, vectors, dy.sample(i), dparameters);
    dx.values.insert(dx.values.end(), of_sample.begin(), of_sample.end());
  }
  for (const bool transposed : {false, true}) {
    const StructuredProduct product(GetParam().structure, batch, {.transposed = transposed, .threads = 2});
    const std::vector<float> xs = x.in_order(transposed), dys = dy.in_order(transposed);
    std::vector<std::vector<float>> gradients;
    std::vector<float*> to;
    for (const auto& parameter : parameters) gradients.emplace_back(parameter.size(), NAN);
    for (auto& gradient : gradients) to.push_back(gradient.data());
    std::vector<float> found(dx.values.size(), NAN), alone(dx.values.size(), NAN);
    product.gradients(xs.data(), dys.data(), pointers, found.data(), to);
    expect_near(found, dx.in_order(transposed), "dx");
    expect_parameter_gradients(gradients, dparameters);
    product.gradients(xs.data(), dys.data(), pointers, alone.data(), {});
    EXPECT_EQ(alone, found);
    for (auto& gradient : gradients) std::ranges::fill(gradient, NAN);
    product.gradients(xs.data(), dys.data(), pointers, nullptr, to);
    expect_parameter_gradients(gradients, dparameters);
  }
}

TEST_P(StructuredTest, AddsABiasAndHasItsGradient) {
  const std::vector<float> bias = random_floats(outputs, 99);
  for (const bool transposed : {false, true}) {
    const StructuredOptions options{.transposed = transposed, .threads = 2};
    StructuredOptions with_bias = options;
    with_bias.bias = true;
    const StructuredProduct plain(GetParam().structure, batch, options);
    const StructuredProduct product(GetParam().structure, batch, with_bias);
    ASSERT_EQ(product.parameters().back().elements(), outputs);
    std::vector<const float*> of_product = pointers;
    of_product.push_back(bias.data());

    const std::vector<float> xs = x.in_order(transposed), dys = dy.in_order(transposed);
    std::vector<float> y(dys.size(), NAN), expected(dys.size(), NAN);
    plain(xs.data(), pointers, expected.data());
    product(xs.data(), of_product, y.data());
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += bias[transposed ? i / batch : i % outputs];
    expect_near(y, expected, "y");

    std::vector<std::vector<float>> gradients, others;
    std::vector<float*> to, to_others;
    for (const auto& parameter : parameters) {
      gradients.emplace_back(parameter.size(), NAN);
      others.emplace_back(parameter.size(), NAN);
    }
    gradients.emplace_back(outputs, NAN);
    for (auto& gradient : gradients) to.push_back(gradient.data());
    for (auto& other : others) to_others.push_back(other.data());
    std::vector<float> dx(xs.size(), NAN), expected_dx(xs.size(), NAN);
    plain.gradients(xs.data(), dys.data(), pointers, expected_dx.data(), to_others);
    of_product.back() = nullptr;  // its values do not matter
    product.gradients(xs.data(), dys.data(), of_product, dx.data(), to);
    expect_near(dx, expected_dx, "dx");
    for (size_t i = 0; i < others.size(); ++i) expect_near(gradients[i], others[i], "gradient");
    std::vector<float> sums(outputs);
    for (uint32_t i = 0; i < batch; ++i)
      for (uint32_t j = 0; j < outputs; ++j) sums[j] += dy.values[size_t{i} * outputs + j];
    expect_near(gradients.back(), sums, "gradient of the bias");
  }
}

INSTANTIATE_TEST_SUITE_P(Structured, StructuredTest, testing::ValuesIn(settings()),
                         [](const auto& of) { return of.param.name + "_" + std::to_string(of.param.batch); });

TEST(Structured, HasTheShapesOfThePublicImplementations) {
  const auto shape_of = [](const Structure& structure, size_t i = 0) {
    return parameters_of(structure)[i].shape;
  };
  using Shape = std::vector<uint32_t>;
  EXPECT_EQ(shape_of(Butterfly{.inputs = 1000, .outputs = 2050, .blocks = 2}), (Shape{3, 2, 10, 512, 2, 2}));
  EXPECT_EQ(shape_of(Butterfly{.inputs = 1024, .outputs = 1024, .tied = true}), (Shape{1, 1023, 2, 2}));
  EXPECT_EQ(shape_of(Butterfly{.inputs = 8, .outputs = 8, .complex = true}), (Shape{1, 1, 3, 4, 2, 2, 2}));
  EXPECT_EQ(shape_of(Kronecker{4, 8, 16, 2}), (Shape{4, 2, 8, 16}));
  EXPECT_EQ(shape_of(Toeplitz{10, 20}), (Shape{29}));
}

TEST(Structured, RefusesImpossibleSizes) {
  const auto message = [](const Structure& structure, uint32_t batch = 4) {
    return test::error_of<UsageError>([&] { StructuredProduct(structure, batch); });
  };
  EXPECT_NE(message(Butterfly{0, 4}).find("inputs is 0"), std::string::npos);
  EXPECT_NE(message(Butterfly{.inputs = 4, .outputs = 4, .blocks = 2, .tied = true}).find("one block"),
            std::string::npos);
  EXPECT_NE(message(Kronecker{2, 3, 4, 1, 9}).find("1 to 8"), std::string::npos);
  EXPECT_NE(message(Kronecker{1 << 20, 1 << 20, 4, 1}).find("too large"), std::string::npos);
  EXPECT_NE(message(Circulant{8, 9}).find("1 to 8"), std::string::npos);
  EXPECT_NE(message(Fastfood{4, 4, {0, 1, 1, 3}}).find("there already"), std::string::npos);
  EXPECT_NE(message(Fastfood{4, 4, {0, 1, 2, 4}}).find("too large"), std::string::npos);
  EXPECT_NE(message(Fastfood{4, 4, {0}}).find("1 × 4 are needed"), std::string::npos);
  EXPECT_NE(message(Circulant{8}, 0).find("no samples"), std::string::npos);
}

TEST(Structured, HasAtMostTwoToThe24Features) {
  constexpr uint32_t kMost = 1U << 24;
  const auto largest = [](uint32_t size) {
    return std::vector<Structure>{Butterfly{size, 1}, Butterfly{1, size}, Circulant{size, 1, 1},
                                  Toeplitz{size, 1}, Toeplitz{1, size}};
  };
  for (const Structure& structure : largest(kMost)) EXPECT_NO_THROW(parameters_of(structure));
  for (const Structure& structure : largest(kMost + 1))
    EXPECT_NE(test::error_of<UsageError>([&] { parameters_of(structure); }).find("1 to 16777216"),
              std::string::npos);
}

TEST(Structured, RefusesMissingArrays) {
  const StructuredProduct product(Circulant{8}, 2);
  std::vector<float> x(16), c(8);
  const float* parameters[] = {c.data()};
  const float* missing[] = {nullptr};
  const auto message = [](const auto& call) { return test::error_of<UsageError>(call); };
  EXPECT_NE(message([&] { product(nullptr, parameters, x.data()); }).find("x is null"), std::string::npos);
  EXPECT_NE(message([&] { product(x.data(), missing, x.data()); }).find("c is null"), std::string::npos);
  EXPECT_NE(message([&] { product(x.data(), {}, x.data()); }).find("1 parameters"), std::string::npos);
}

}  // namespace
}  // namespace tessera
