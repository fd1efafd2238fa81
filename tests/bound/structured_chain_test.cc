// Chains of structured maps: compared with the maps' definitions in float64, one after the other.
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/structured.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>

#include "support/error_of.h"
#include "support/structured_reference.h"

namespace tessera {
namespace {

constexpr uint32_t kBatch = 21;

struct Setting {
  std::string name;
  std::vector<Structure> maps;
};

void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

class StructuredChainTest : public testing::TestWithParam<Setting> {};

TEST_P(StructuredChainTest, IsItsMapsOneAfterTheOther) {
  const StructuredProduct chain(GetParam().maps, kBatch, {.threads = 2});
  const uint32_t inputs = inputs_of(GetParam().maps.front()), outputs = outputs_of(GetParam().maps.back());
  const std::vector<float> x = test::random_floats(size_t{kBatch} * inputs, 5);
  const std::vector<float> dy = test::random_floats(size_t{kBatch} * outputs, 6);
  test::Vectors parameters;
  for (const Structure& map : GetParam().maps)
    std::ranges::move(test::random_parameters(map, 7 + parameters.size()), std::back_inserter(parameters));
  const test::StructuredReference expected(GetParam().maps, parameters, x, dy, kBatch);

  std::vector<const float*> pointers;
  for (const auto& parameter : parameters) pointers.push_back(parameter.data());
  std::vector<float> y(dy.size(), NAN), dx(x.size(), NAN), alone(x.size(), NAN);
  test::Vectors gradients = parameters;
  std::vector<float*> to;
  for (auto& gradient : gradients) {
    std::ranges::fill(gradient, NAN);
    to.push_back(gradient.data());
  }
  ASSERT_EQ(chain.parameters().size(), parameters.size());
  chain(x.data(), pointers, y.data());
  test::expect_close(y, expected.y, 4e-6, "y");
  chain.gradients(x.data(), dy.data(), pointers, dx.data(), to);
  test::expect_close(dx, expected.dx, 4e-6, "dx");
  for (size_t i = 0; i < gradients.size(); ++i)
    test::expect_close(gradients[i], expected.gradients[i], 4e-6, "gradient of a parameter");
  chain.gradients(x.data(), dy.data(), pointers, alone.data(), {});
  EXPECT_EQ(alone, dx);
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
  EXPECT_USAGE_ERROR("have 2 parameters; given are 0", StructuredProduct(maps, 1)(x.data(), {}, y.data()));
}

}  // namespace
}  // namespace tessera
