// Chains of structured maps: compared with the maps' definitions in float64, one after the other.
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/structured.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "base/random.h"
#include "ops/structured/definition.h"
#include "support/error_of.h"

namespace tessera {
namespace {

constexpr uint32_t kBatch = 21;

struct Setting {
  std::string name;
  std::vector<Structure> maps;
};

void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

std::vector<float> random_floats(size_t count, uint32_t stream) {
  std::vector<float> floats(count);
  base::RandomStream(5, 0, stream).fill_symmetric(floats);
  return floats;
}

/// One sample through all maps, and back.
struct Definition {
  explicit Definition(const std::vector<Structure>& maps) {
    for (const Structure& map : maps) {
      stages.push_back(ops::stages_of(map));
      parameters.emplace_back();
      for (const StructuredParameter& parameter : parameters_of(map)) {
        arrays.push_back(random_floats(parameter.elements(), static_cast<uint32_t>(2 + arrays.size())));
        parameters.back().insert(parameters.back().end(), arrays.back().begin(), arrays.back().end());
      }
      gradients.emplace_back(parameters.back().size());
    }
  }

  std::vector<double> apply(std::vector<double> x) {
    between.clear();
    for (size_t i = 0; i < stages.size(); ++i) {
      between.push_back(ops::apply_stages(stages[i], parameters[i], x));
      x = between.back().back();
    }
    return x;
  }

  /// The gradient of what apply() was called with last; adds to `gradients`.
  std::vector<double> differentiate(std::vector<double> dy) {
    for (size_t i = stages.size(); i-- > 0;)
      dy = ops::differentiate_stages(stages[i], parameters[i], between[i], dy, gradients[i]);
    return dy;
  }

  std::vector<std::vector<ops::StructuredStage>> stages;
  std::vector<std::vector<float>> arrays;  ///< of all parameters
  std::vector<std::vector<double>> parameters, gradients;
  std::vector<std::vector<std::vector<double>>> between;
};

void expect_near(std::span<const float> found, std::span<const double> expected) {
  ASSERT_EQ(found.size(), expected.size());
  double most = 0;
  for (const double value : expected) most = std::max(most, std::abs(value));
  for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 4e-6 * most) << i;
}

class StructuredChainTest : public testing::TestWithParam<Setting> {};

TEST_P(StructuredChainTest, IsItsMapsOneAfterTheOther) {
  const StructuredProduct chain(GetParam().maps, kBatch, {.threads = 2});
  Definition definition(GetParam().maps);
  const uint32_t inputs = inputs_of(GetParam().maps.front()), outputs = outputs_of(GetParam().maps.back());
  const std::vector<float> x = random_floats(size_t{kBatch} * inputs, 0);
  const std::vector<float> dy = random_floats(size_t{kBatch} * outputs, 1);
  std::vector<double> y, dx, dparameters;
  for (uint32_t i = 0; i < kBatch; ++i) {
    const auto row = [i](const std::vector<float>& of, uint32_t features) {
      return std::vector<double>(of.begin() + int64_t{i} * features, of.begin() + int64_t{i + 1} * features);
    };
    std::ranges::copy(definition.apply(row(x, inputs)), std::back_inserter(y));
    std::ranges::copy(definition.differentiate(row(dy, outputs)), std::back_inserter(dx));
  }
  for (const auto& gradient : definition.gradients)
    std::ranges::copy(gradient, std::back_inserter(dparameters));

  std::vector<const float*> parameters;
  for (const auto& array : definition.arrays) parameters.push_back(array.data());
  std::vector<float> found_y(y.size(), NAN), found_dx(dx.size(), NAN), found(dparameters.size(), NAN);
  std::vector<float*> to;
  for (size_t i = 0, begin = 0; i < parameters.size(); begin += definition.arrays[i++].size())
    to.push_back(found.data() + begin);
  ASSERT_EQ(chain.parameters().size(), parameters.size());
  chain(x.data(), parameters, found_y.data());
  expect_near(found_y, y);
  chain.gradients(x.data(), dy.data(), parameters, found_dx.data(), to);
  expect_near(found_dx, dx);
  expect_near(found, dparameters);
  std::vector<float> alone(dx.size(), NAN);
  chain.gradients(x.data(), dy.data(), parameters, alone.data(), {});
  EXPECT_EQ(alone, found_dx);
}

INSTANTIATE_TEST_SUITE_P(
    Structured, StructuredChainTest,
    testing::Values(Setting{"one", {Butterfly{64, 40}}},
                    Setting{"low_rank", {Kronecker{1, 8, 100, 1}, Kronecker{1, 37, 8, 1}}},
                    Setting{"monarch", {Kronecker{6, 7, 17, 1, 100, 42}, Kronecker{1, 9, 6, 7, 42, 60}}},
                    Setting{"butterflies_and_a_circulant",
                            {Butterfly{30, 30}, Circulant{30}, Butterfly{.inputs = 30, .outputs = 70}}}),
    [](const auto& of) { return of.param.name; });

TEST(StructuredChain, GivesTheLastMapTheBias) {
  const std::vector<Structure> maps = {Circulant{8}, Circulant{8}};
  const StructuredProduct chain(maps, 1, {.bias = true});
  ASSERT_EQ(chain.parameters().size(), 3U);
  const std::vector<float> one = {1, 0, 0, 0, 0, 0, 0, 0}, bias = {0, 1, 2, 3, 4, 5, 6, 7};
  const std::vector<const float*> parameters = {one.data(), one.data(), bias.data()};
  std::vector<float> y(8);
  chain(bias.data(), parameters, y.data());
  for (int i = 0; i < 8; ++i) EXPECT_NEAR(y[i], 2 * i, 1e-5);
}

TEST(StructuredChain, RefusesMapsThatDoNotMeet) {
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
  EXPECT_TRUE(
      test::says(test::error_of<UsageError>([&] { StructuredProduct(maps, 1)(x.data(), {}, y.data()); }),
                 "have 2 parameters; given are 0"));
}

}  // namespace
}  // namespace tessera
