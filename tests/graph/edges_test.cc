// Results of operations at the limits of their inputs, on a host and on tiles, and refused inputs.
#include <gtest/gtest.h>
#include <tessera/arithmetic.h>
#include <tessera/error.h>
#include <tessera/gradients.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "compare.h"
#include "operations/constants.h"
#include "support/error_of.h"

namespace tessera::graph {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <class Build>
void expect(const Arrays& inputs, const std::vector<float>& expected, const Build& build) {
  for (const Machine& machine : {Machine::host(2), Machine::find("gc200").with("tiles", 6)}) {
    Graph g;
    g.output("result", build(g));
    const std::vector<float> y = Session(g, machine).run(inputs).at("result");
    ASSERT_EQ(y.size(), expected.size());
    for (size_t i = 0; i < y.size(); ++i)
      EXPECT_TRUE(y[i] == expected[i] || (std::isnan(y[i]) && std::isnan(expected[i])))
          << machine.name() << ": element " << i << " is " << y[i] << " instead of " << expected[i];
  }
}

TEST(Edges, AGatherBeyondTheDimensionIsNoOtherRow) {
  for (const Type type : {Type::f32, Type::i32}) {
    const auto build = [&](Graph& g) {
      return gather(g.input("x", {2, 3}, type), 1, g.input("ids", {2, 3}, Type::i32));
    };
    expect({{"x", {1, 2, 3, 4, 5, 6}}, {"ids", {2, 1, 0, 0, 2, 1}}}, {3, 2, 1, 4, 6, 5}, build);
    for (const float beyond : {3.0F, -1.0F, 5.0F, -2147483648.0F})
      for (const Machine& machine : {Machine::host(2), Machine::find("gc200").with("tiles", 6)}) {
        Graph g;
        g.output("result", build(g));
        const Arrays inputs = {{"x", {1, 2, 3, 4, 5, 6}}, {"ids", {2, 1, 0, beyond, 2, 1}}};
        EXPECT_TRUE(test::says(test::error_of<UsageError>([&] { Session(g, machine).run(inputs); }),
                               "is not one of a dimension of 3"))
            << beyond;
      }
  }
}

TEST(Edges, TheMaximumOfWhatHoldsNanIsThere) {
  const Arrays inputs = {{"x", {1, kNan, kInfinity, kNan, -kInfinity, -kInfinity, -kInfinity, -kInfinity}}};
  expect(inputs, {1, 0}, [](Graph& g) { return argmax(g.input("x", {2, 4}), 1); });
}

TEST(Edges, AnInfiniteNumberStaysWithoutASlopeBelow) {
  expect({{"x", {kInfinity, 2, -3, kNan}}}, {kInfinity, 2, 0, kNan},
         [](Graph& g) { return leaky_relu(g.input("x", {4}), 0); });
}

TEST(Edges, RoundedNumbersHaveNoSlopeHoweverLargeTheyAre) {
  const std::vector<float> numbers = {-2.5F, 0.5F, 1.5F, 0x1p23F, -0x1p24F - 2, 0x1p40F, kInfinity};
  const auto expect_of = [&](Value (*function)(Value), std::vector<float> small) {
    small.insert(small.end(), numbers.begin() + 3, numbers.end());
    expect({{"x", numbers}}, small, [&](Graph& g) { return function(g.input("x", {7})); });
    expect({{"x", numbers}}, std::vector<float>(7), [&](Graph& g) {
      const Value x = g.input("x", {7});
      return *gradients(sum(function(x)), {x})[0];
    });
  };
  expect_of(trunc, {-2, 0, 1});
  expect_of(floor, {-3, 0, 1});
  expect_of(round, {-2, 0, 2});
}

/// With small relative errors, where exp(x) − 1 and its slope are.
TEST(Edges, AnEluIsExactNearZeroAndItsSlopeFarBelow) {
  const std::vector<float> numbers = {-0x1p-24F, -0x1p-14F, -0x1p-9F, -0.25F, -3, -20};
  for (const Type type : {Type::f32, Type::f16})
    for (const Machine& machine : {Machine::host(2), Machine::find("gc200").with("tiles", 6)}) {
      Graph g;
      const Value x = g.input("x", {6}, type), y = elu(x, 2);
      g.output("y", y);
      g.output("slope", *gradients(sum(cast(y, Type::f32)), {x})[0]);
      const Arrays inputs = {{"x", numbers}}, found = Session(g, machine).run(inputs);
      const double relative = type == Type::f32 ? 1e-5 : 1e-3, least = type == Type::f32 ? 0 : 0x1p-24;
      for (size_t i = 0; i < numbers.size(); ++i) {
        const double of = double{numbers[i]}, expected = 2 * std::expm1(of), slope = 2 * std::exp(of);
        EXPECT_NEAR(found.at("y")[i], expected, relative * -expected) << of << " on " << machine.name();
        EXPECT_NEAR(found.at("slope")[i], slope, relative * slope + least) << of << " on " << machine.name();
      }
    }
}

TEST(Edges, PowersAndQuotientsOf16BitsAreRoundedOnce) {
  const auto of = [](Value (*function)(Value, Value)) {
    return
        [function](Graph& g) { return function(g.input("a", {1}, Type::f16), g.input("b", {1}, Type::f16)); };
  };
  expect({{"a", {20}}, {"b", {3.5F}}}, {35776}, of(pow));
  expect({{"a", {5000}}, {"b", {3}}}, {1666}, of(floor_divide));
}

TEST(Edges, AMeanOfSquaresIsFiniteWhereSquaresAreBeyondFp16) {
  expect({{"x", {320, 0, 0, 0}}, {"target", {0, 0, 0, 0}}}, {25600}, [](Graph& g) {
    return mean_squared_error(g.input("x", {4}, Type::f16), g.input("target", {4}, Type::f16));
  });
}

TEST(Edges, AConditionHoldsWhereItIsNotZero) {
  const Arrays inputs = {
      {"condition", {0.5F, 0, -0.25F, kNan, 1e-30F}}, {"a", {1, 2, 3, 4, 5}}, {"b", {6, 7, 8, 9, 10}}};
  for (const Type type : {Type::f32, Type::f16, Type::u32, Type::i32})
    expect(inputs, {1, 7, 3, 4, 5}, [&](Graph& g) {
      return where(g.input("condition", {5}), g.input("a", {5}, type), g.input("b", {5}, type));
    });
}

TEST(Edges, ALogarithmOfASoftmaxTakesMoreElementsThanFp16Counts) {
  constexpr uint32_t kElements = 70'000;
  // -log(70,000), rounded.
  expect({{"x", std::vector<float>(kElements)}}, std::vector<float>(kElements, -11.15625F),
         [](Graph& g) { return log_softmax(g.input("x", {kElements}, Type::f16)); });
}

TEST(Edges, MoreEqualElementsThanFp16CountsShareTheGradientOfTheirMaximum) {
  constexpr uint32_t kElements = 70'000;
  // The nearest number to 1 / 70,000.
  expect({{"x", std::vector<float>(kElements)}}, std::vector<float>(kElements, 240 * 0x1p-24F), [](Graph& g) {
    const Value x = g.input("x", {kElements}, Type::f16);
    return *gradients(cast(max(x), Type::f32), {x})[0];
  });
}

TEST(Edges, IntegersAreNotCombinedWithNumbersThatTheyLack) {
  Graph g;
  const Value x = g.input("x", {3}, Type::u32);
  EXPECT_USAGE_ERROR("-1 cannot be combined with values of u32: use a whole number from 0 to 2^24",
                     number(x, -1));
  for (const double wrong : {0.5, double{kNan}, 0x1p24 + 1})
    EXPECT_USAGE_ERROR("cannot be combined with values of u32", number(x, wrong));
}

TEST(Edges, MeansOfSquaresOfIntegersAreNotCutOff) {
  for (const Type type : {Type::u32, Type::i32}) {
    Graph g;
    const Value x = g.input("x", {4}, type), target = g.input("target", {4}, type);
    EXPECT_USAGE_ERROR("cannot be scaled: cast it", mean_squared_error(x, target));
  }
}

TEST(Edges, IntegersWrapAround) {
  constexpr float kLarge = 1 << 30;
  const Arrays inputs = {{"x", {3, -kLarge, kLarge}}, {"y", {5, kLarge, -kLarge}}};
  const auto of = [](const auto& function) {
    return [&function](Graph& g) {
      return function(g.input("x", {3}, Type::i32), g.input("y", {3}, Type::i32));
    };
  };
  expect(inputs, {-2, -2 * kLarge, -2 * kLarge}, of([](Value x, Value y) { return x - y; }));
  expect(inputs, {-3, kLarge, -kLarge}, of([](Value x, Value) { return -x; }));
  expect(inputs, {3, -kLarge, -kLarge}, of([](Value x, Value y) {
           return min(concatenate({reshape(x, {1, 3}), reshape(y, {1, 3})}, 0), {0});
         }));
  expect(inputs, {3}, of([](Value x, Value) { return sum(x); }));
}

TEST(Edges, RefusesShapesThatOnlyHaveAsManyElements) {
  Graph g;
  const Value x = g.input("x", {6}), columns = g.input("columns", {36, 1}), m = g.input("m", {8, 15});
  const auto refuses = [](const std::string& why, const auto& make) {
    EXPECT_TRUE(test::says(test::error_of<UsageError>(make), why));
  };
  refuses("f32[6] cannot be expanded to f32[2, 3]", [&] { expand(x, {2, 3}); });
  refuses("cannot be expanded", [&] { expand(g.input("rows", {2, 3}), {6}); });
  EXPECT_NO_THROW(expand(columns, {4, 9, 21}));
  const auto permute_as = [&](std::vector<int64_t> view, std::vector<int64_t> shape) {
    return [&g, m, view, shape] {
      g.apply("permute", {m}, {{"dims", std::vector<int64_t>{1, 0, 2}}, {"view", view}, {"shape", shape}});
    };
  };
  EXPECT_NO_THROW(permute_as({4, 2, 15}, {8, 15})());
  refuses("does not consist of last ones", permute_as({4, 2, 15}, {4, 30}));
  refuses("does not consist of last ones", permute_as({4, 6, 5}, {8, 15}));
  refuses("does not have as many elements", permute_as({4, 2, 14}, {8, 14}));
}

TEST(Edges, RefusesBasesOfRotaryPositionsThatAreNone) {
  Graph g;
  for (const double base : {-1.0, 0.0, double{kInfinity}, double{kNan}})
    EXPECT_USAGE_ERROR("it must be a positive number", rotary_tables(g, 4, 8, base));
}

TEST(Edges, RefusesLimitsOfAttentionThatAreNone) {
  Graph g;
  const Value x = g.input("x", {2, 5, 8});
  const auto refuses = [&](const char* name, int64_t value, const std::string& why) {
    EXPECT_TRUE(test::says(test::error_of<UsageError>([&] {
                             g.apply("attention", {x, x, x}, {{"heads", int64_t{2}}, {name, value}});
                           }),
                           why));
  };
  refuses("left", -1, "the limit left is -1; it must be at least 0, or left out for none");
  refuses("right", -5, "the limit right is -5");
  refuses("offset", int64_t{1} << 62, "offset is 4611686018427387904; it must be from");
  refuses("left", std::numeric_limits<int64_t>::max(), "it must be from");
}

}  // namespace
}  // namespace tessera::graph
