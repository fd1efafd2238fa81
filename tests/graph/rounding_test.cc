// Stochastic rounding in graphs: the same bits on every machine, and separate random numbers where needed.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/gradients.h>

#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/stochastic_rounding.h"
#include "compare.h"
#include "graph/operation.h"
#include "networks.h"
#include "support/error_of.h"

namespace tessera::graph {
namespace {

using test::error_of;
using test::says;

std::vector<Machine> machines() {
  return {Machine::host(1), Machine::host(3), Machine::find("gc200").with("tiles", 6)};
}

float rounded(Type type, float x, uint32_t word) {
  return type == Type::f16 ? base::to_float(base::to_half(x, word))
                           : base::to_float(base::to_bfloat16(x, word));
}

/// A value, rounded by the words of the stream of a step and an operation.
std::vector<float> rounded(Type type, const std::vector<float>& x, uint64_t seed, uint32_t step,
                           uint32_t stream) {
  const base::RandomStream random(seed, step, stream);
  std::vector<float> y;
  for (size_t i = 0; i < x.size(); ++i) y.push_back(rounded(type, x[i], random.word(i)));
  return y;
}

/// The cast as an operation, with its attributes.
Value stochastic(Value x, Type type, Value step, int64_t seed, int64_t stream, bool is_shared = false) {
  return x.owner().apply("cast", {x, step},
                         {{"type", std::string(name_of(type))},
                          {"rounding", "stochastic"},
                          {"seed", seed},
                          {"stream", stream},
                          {"shared", int64_t{is_shared}}})[0];
}

bool takes(const Machine& machine, Type type) { return machine.name() == "host" || type != Type::bf16; }

TEST(Rounding, IsThatOfTheElementOnEveryMachine) {
  const Shape shape = {5, 7, 33};
  for (Type type : {Type::f16, Type::bf16}) {
    Graph g;
    const Value x = g.input("x", shape), step = g.input("step", {}, Type::u32);
    g.output("y", stochastic(x, type, step, 21, 4));
    g.output("flat", stochastic(reshape(x, {35, 33}), type, step, 21, 4));
    const Arrays inputs = {{"x", narrowed(random_values(x.type(), -2, 2, 1, 3, 0))}, {"step", {9}}};
    const std::vector<float> expected = rounded(type, inputs.at("x"), 21, 9, 4);
    for (const Machine& machine : machines()) {
      if (!takes(machine, type)) continue;
      SCOPED_TRACE(machine.name());
      const Arrays found = Session(g, machine).run(inputs);
      EXPECT_EQ(found.at("y"), expected);
      EXPECT_EQ(found.at("flat"), expected);
    }
  }
}

/// Parameters of products lie in a form of their own.
TEST(Rounding, OfWeightsIsThatOfTheElement) {
  Graph g;
  const Value x = g.input("x", {12, 40}), step = g.input("step", {}, Type::u32);
  const Value w = g.parameter("w", {37, 40}, Initial::normal(1)), v = g.parameter("v", {24, 37});
  const Value own = linear(relu(linear(x, w)), v);
  g.output("y", own);
  const Value narrow = stochastic(w, Type::f16, step, 21, 4);
  g.output("rounded", narrow);
  g.output("product", linear(x, cast(narrow, Type::f32)));
  const Arrays inputs = {{"x", narrowed(random_values(x.type(), -2, 2, 1, 3, 0))}, {"step", {9}}};
  for (const Machine& machine : machines()) {
    SCOPED_TRACE(machine.name());
    Session session(g, machine);
    const std::vector<float> expected = rounded(Type::f16, session.get("w"), 21, 9, 4);
    EXPECT_EQ(session.run(inputs).at("rounded"), expected);
  }
}

/// A permutation is not moved past it.
TEST(Rounding, OfAPermutedValueIsThatOfTheElement) {
  Graph g;
  const Value x = g.input("x", {6, 5, 8}), step = g.input("step", {}, Type::u32);
  g.output("y", permute(stochastic(permute(x, {1, 0, 2}), Type::f16, step, 2, 1, true), {1, 0, 2}));
  const Arrays inputs = {{"x", narrowed(random_values(x.type(), -2, 2, 1, 3, 0))}, {"step", {9}}};
  const auto permuted = [](const std::vector<float>& from, size_t rows, size_t cols) {
    std::vector<float> y(from.size());
    for (size_t r = 0; r < rows; ++r)
      for (size_t c = 0; c < cols; ++c) std::copy_n(&from[(r * cols + c) * 8], 8, &y[(c * rows + r) * 8]);
    return y;
  };
  const std::vector<float> expected =
      permuted(rounded(Type::f16, permuted(inputs.at("x"), 6, 5), 2, 9, 1), 5, 6);
  for (const Machine& machine : machines()) EXPECT_EQ(Session(g, machine).run(inputs).at("y"), expected);
}

TEST(Rounding, DiffersBetweenCallsUnlessItIsShared) {
  for (bool is_shared : {false, true}) {
    auto function = std::make_shared<Graph>();
    const Value inside = function->input("x", {4, 50}), count = function->input("step", {}, Type::u32);
    function->output("y", stochastic(inside, Type::f16, count, 3, 1, is_shared));
    Graph g;
    const Value x = g.input("x", {4, 50}), step = g.input("step", {}, Type::u32);
    g.output("first", g.call(function, {x, step})[0]);
    g.output("second", g.call(function, {x, step})[0]);
    const Arrays inputs = {{"x", narrowed(random_values(x.type(), -2, 2, 1, 3, 0))}, {"step", {9}}};
    Arrays before;
    for (const Machine& machine : machines()) {
      const Arrays found = Session(g, machine).run(inputs);
      EXPECT_EQ(found.at("first") == found.at("second"), is_shared);
      if (!before.empty()) {
        EXPECT_EQ(found, before) << machine.name();
      }
      before = found;
    }
  }
}

TEST(Rounding, OfACastDependsOnStepAndSeed) {
  Graph g;
  const Value x = g.input("x", {100}), step = g.input("step", {}, Type::u32);
  g.output("a", stochastic_cast(x, Type::bf16, step, 1));
  g.output("b", stochastic_cast(x, Type::bf16, step, 2));
  Session session(g, Machine::host(1));
  const std::vector<float> values = narrowed(random_values(x.type(), -2, 2, 1, 3, 0));
  const Arrays first = session.run({{"x", values}, {"step", {1}}}),
               again = session.run({{"x", values}, {"step", {1}}}),
               second = session.run({{"x", values}, {"step", {2}}});
  EXPECT_EQ(first, again);
  EXPECT_NE(first.at("a"), first.at("b"));
  EXPECT_NE(first.at("a"), second.at("a"));
}

TEST(Rounding, SaysWhatItDoesNotTake) {
  Graph g;
  const Value x = g.input("x", {3}), n = g.input("n", {3}, Type::u32), step = g.input("step", {}, Type::u32);
  const auto message = [&](const std::vector<Value>& inputs, const Attributes& attributes) {
    return error_of<UsageError>([&] { g.apply("cast", inputs, attributes); });
  };
  const Attribute stochastic = "stochastic";
  EXPECT_TRUE(says(message({x}, {{"type", "f16"}, {"rounding", "up"}}),
                   "unknown rounding of a cast 'up' (choose from nearest, stochastic)"));
  EXPECT_TRUE(says(message({x}, {{"type", "f16"}, {"rounding", stochastic}}), "takes the step"));
  EXPECT_TRUE(says(message({x, x}, {{"type", "f16"}, {"rounding", stochastic}}), "it must be u32[]"));
  EXPECT_TRUE(says(message({x, step}, {{"type", "i32"}, {"rounding", stochastic}}), "only f16 and bf16"));
  EXPECT_TRUE(says(message({n, step}, {{"type", "f16"}, {"rounding", stochastic}}), "u32"));
  EXPECT_TRUE(says(message({x, step}, {{"type", "f16"}}), "only stochastic rounding takes a step"));
}

// Updates.

constexpr size_t kLr = 1;

/// The arrays that an update changes stay as they were after a step with a learning rate of NaN.
class LeftOut : public testing::TestWithParam<const Operation*> {};

TEST_P(LeftOut, WithALearningRateOfNaN) {
  for (const Case& c : GetParam()->cases())
    for (const char* machine : {"host", "bow"}) {
      CaseGraph made(*GetParam(), c, 5);
      const Node& node = made.graph.nodes().back();
      Arrays inputs;
      for (const auto& [name, values] : made.arrays) inputs[name] = narrowed(values);
      inputs.at(made.graph.info(node.inputs[kLr]).name) = {NAN};
      Session session(made.graph, Machine::find(machine, 2));
      for (const auto& [name, values] : made.state) session.set(name, narrowed(values));
      const Arrays found = session.run(inputs);
      const std::vector<ValueId> updated = updated_values(node);
      for (const auto& [name, id] : made.graph.outputs())
        for (size_t i = 0; i < updated.size(); ++i)
          if (node.outputs[i] == id) {
            EXPECT_EQ(found.at(name), session.get(made.graph.info(updated[i]).name)) << name;
          }
    }
}

/// The updates that take a learning rate.
std::vector<const Operation*> updates() {
  std::vector<const Operation*> found;
  for (const Operation* operation : all_operations())
    if (!operation->traits.updates.empty() && operation->cases()[0].inputs[kLr].type == Type::f32)
      found.push_back(operation);
  return found;
}
INSTANTIATE_TEST_SUITE_P(Updates, LeftOut, testing::ValuesIn(updates()),
                         [](const auto& of) { return std::string(of.param->name); });

/// An update that moves parameters of 1 by 2^-13 in each step; near 1, numbers of the types are 2^-8 and
/// 2^-11 apart.
class SmallSteps : public testing::TestWithParam<std::tuple<Type, Type>> {
 public:
  static constexpr uint32_t kRows = 40, kCols = 100, kSteps = 16;
  static constexpr float kLr = 0x1p-13F;

  static std::vector<float> train(const Optimizer& optimizer, Rounding rounding, Type state,
                                  const Machine& machine, uint32_t replicas = 1) {
    Graph g;
    const Value w = g.parameter("w", {kRows, kCols}, Initial::constant(1), std::get<0>(GetParam()));
    const Value x = g.input("x", {2, kCols}, w.type().type);
    const Value loss = sum(cast(linear(x, w), Type::f32)) * 0.5;
    g.output("loss", loss);
    add_training(loss, {.optimizer = optimizer, .replicas = replicas, .state = state, .rounding = rounding});
    Session session(g, machine);
    Arrays inputs = {{"x", std::vector<float>(replicas * 2 * kCols, 1)}, {"lr", {kLr}}};
    for (uint32_t step = 1; step <= kSteps; ++step) {
      if (g.contains("step")) inputs["step"] = {static_cast<float>(step)};
      session.run(inputs);
    }
    return session.get("w");
  }

  static double mean(const std::vector<float>& values) {
    double total = 0;
    for (float value : values) total += value;
    return total / static_cast<double>(values.size());
  }
};

TEST_P(SmallSteps, AreLostIfRoundedToNearest) {
  for (float w : train(Sgd{}, Rounding::nearest, std::get<1>(GetParam()), Machine::host(1))) ASSERT_EQ(w, 1);
}

/// Each step moves a parameter by the distance of its neighbours, or not at all.
TEST_P(SmallSteps, AreTakenOnAverageIfRoundedStochastically) {
  const auto& [type, state] = GetParam();
  const double distance = type == Type::f16 ? 0x1p-11 : 0x1p-8;
  const double deviation = std::sqrt(kSteps * kLr * distance / (kRows * kCols));
  const Adam adam{.epsilon = 1e-12};
  for (const Optimizer& optimizer : {Optimizer(Sgd{}), Optimizer(adam)}) {
    const bool is_exact = std::holds_alternative<Sgd>(optimizer) || state == Type::f32;
    const std::vector<float> w = train(optimizer, Rounding::stochastic, state, Machine::host(1));
    // Moments of few bits deviate as well.
    const double allowed = 4 * deviation + (is_exact ? 0 : 0.05 * kSteps * kLr);
    EXPECT_NEAR(mean(w), 1 - kSteps * kLr, allowed);
    EXPECT_EQ(train(optimizer, Rounding::stochastic, state, Machine::host(3)), w);
    if (type == Type::bf16 || state == Type::bf16) continue;
    EXPECT_EQ(
        train(Sgd{.momentum = 0.5}, Rounding::stochastic, state, Machine::host(2)),
        train(Sgd{.momentum = 0.5}, Rounding::stochastic, state, Machine::find("gc200").with("tiles", 6)));
    EXPECT_EQ(train(Sgd{.momentum = 0.5}, Rounding::stochastic, state, Machine::host(2)),
              train(Sgd{.momentum = 0.5}, Rounding::stochastic, state,
                    Machine::find("m2000").with("chips", 2).with("tiles", 6), 2));
  }
}

INSTANTIATE_TEST_SUITE_P(Updates, SmallSteps,
                         testing::Values(std::tuple(Type::f16, Type::f32), std::tuple(Type::f16, Type::f16),
                                         std::tuple(Type::bf16, Type::f32),
                                         std::tuple(Type::bf16, Type::bf16)),
                         [](const auto& of) {
                           return fmt::format("{}_{}", name_of(std::get<0>(of.param)),
                                              name_of(std::get<1>(of.param)));
                         });

/// The stores that updates of a parameter and of its moments round stochastically, and whether partial sums
/// are rounded so.
std::map<std::string, bool> stochastic_stores(Rounding rounding, const Roundings& roundings) {
  Graph g;
  const Value x = g.input("x", {4, 8}, Type::f16);
  const Value w = g.parameter("w", {6, 8}, Initial::normal(1), Type::f16);
  add_training(mean(cast(square(linear(x, w)), Type::f32)),
               {.optimizer = Adam{}, .state = Type::bf16, .rounding = rounding, .roundings = roundings});
  std::map<std::string, bool> found = {{"partials", g.partial_sums().rounding == Rounding::stochastic}};
  for (const Assignment& assignment : g.assignments()) {
    const Node& node = g.nodes().at(g.info(assignment.value).node.value());
    found[g.info(assignment.state).name] = node.attributes.contains("rounding");
  }
  return found;
}

TEST(Rounding, OfEachStoreMayBeAnother) {
  for (const Rounding of_all : {Rounding::nearest, Rounding::stochastic})
    for (const std::optional<Rounding> other :
         {std::optional<Rounding>(), std::optional(Rounding::nearest), std::optional(Rounding::stochastic)})
      for (const uint32_t store : {0U, 1U, 2U}) {
        SCOPED_TRACE(
            fmt::format("{} {} {}", static_cast<int>(of_all), other ? static_cast<int>(*other) : -1, store));
        Roundings roundings;
        (store == 0 ? roundings.parameters : store == 1 ? roundings.state : roundings.partials) = other;
        const auto expected = [&](uint32_t of) {
          return (of == store ? other.value_or(of_all) : of_all) == Rounding::stochastic;
        };
        EXPECT_EQ(stochastic_stores(of_all, roundings),
                  (std::map<std::string, bool>{{"w", expected(0)},
                                               {"w.first_moment", expected(1)},
                                               {"w.second_moment", expected(1)},
                                               {"partials", expected(2)}}));
      }
}

/// With moments to the nearest as with all stochastically, parameters are what differs from rounding to the
/// nearest; on tiles as on hosts.
TEST(Rounding, OfParametersAloneTakesSmallUpdates) {
  for (const Machine& machine : machines()) {
    SCOPED_TRACE(machine.name());
    const auto train = [&](const Roundings& roundings) {
      Graph g;
      const Value w = g.parameter("w", {40, 100}, Initial::constant(1), Type::f16);
      const Value x = g.input("x", {2, 100}, Type::f16);
      add_training(sum(cast(linear(x, w), Type::f32)) * 0.5,
                   {.optimizer = Sgd{.momentum = 0.5}, .state = Type::f16, .roundings = roundings});
      Session session(g, machine);
      Arrays inputs = {{"x", std::vector<float>(200, 1)}, {"lr", {0x1p-13F}}};
      for (float step = 1; step <= 8; ++step) {
        if (g.contains("step")) inputs["step"] = {step};
        session.run(inputs);
      }
      double total = 0;
      for (const float each : session.get("w")) total += each;
      return total / 4000;
    };
    EXPECT_EQ(train({}), 1);
    EXPECT_EQ(train({.state = Rounding::stochastic}), 1);
    EXPECT_LT(train({.parameters = Rounding::stochastic}), 1 - 0x1p-11);
  }
}

TEST(Rounding, OfStateHalvesItsBytes) {
  std::map<Type, uint64_t> bytes;
  for (Type state : {Type::f32, Type::bf16}) {
    Classifier network(Layers::dense);
    add_training(network.loss, {.optimizer = Adam{}, .state = state, .rounding = Rounding::stochastic});
    bytes[state] = Session(network.graph, Machine::host(1)).cost().bytes.at("optimizer");
  }
  EXPECT_EQ(2 * bytes[Type::bf16], bytes[Type::f32]);
}

TEST(Rounding, OfStateIsOfTypesOfFloatingPoint) {
  Classifier network(Layers::dense);
  EXPECT_TRUE(says(error_of<UsageError>([&] { add_training(network.loss, {.state = Type::u32}); }),
                   "an optimizer's state cannot be u32"));
}

}  // namespace
}  // namespace tessera::graph
