// Random numbers in functions, micro-batches and replicas.
#include "graph/substream.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/gradients.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "compare.h"
#include "support/error_of.h"

namespace tessera::graph {
namespace {

using test::error_of;
using test::says;

constexpr uint32_t kRows = 6, kCols = 40;

/// A function that drops elements of x, or calls another one twice.
std::shared_ptr<const Graph> dropping(const std::shared_ptr<const Graph>& inner = nullptr) {
  auto function = std::make_shared<Graph>();
  const Value x = function->input("x", {kRows, kCols}), step = function->input("step", {}, Type::u32);
  if (inner == nullptr) {
    function->output("y", dropout(x, 0.5, step, 7));
    return function;
  }
  function->output("first", function->call(inner, {x, step})[0]);
  function->output("second", function->call(inner, {x, step})[0]);
  return function;
}

void add_outputs(Graph& g, const std::vector<Value>& values) {
  for (const Value& value : values) g.output(fmt::format("y{}", g.outputs().size()), value);
}

/// The same on every machine and in float64.
Arrays run_everywhere(const Graph& g, const WideArrays& inputs) {
  WideArrays state;
  const WideArrays expected = evaluate(g, inputs, state);
  Arrays found;
  for (const Machine& machine : {Machine::host(2), Machine::find("gc200").with("tiles", 6)}) {
    found = Session(g, machine).run(narrowed(inputs));
    for (const auto& [name, values] : expected)
      EXPECT_TRUE(std::equal(values.begin(), values.end(), found.at(name).begin(), found.at(name).end()))
          << name << " on " << machine.name();
  }
  return found;
}

TEST(Substreams, DifferBetweenCalls) {
  const auto function = dropping(), outer = dropping(function), outermost = dropping(dropping(outer));
  Graph g;
  const Value x = g.input("x", {kRows, kCols}), step = g.input("step", {}, Type::u32);
  add_outputs(g, {dropout(x, 0.5, step, 7)});
  for (const auto& called : {function, outer, outermost, function, outer})
    add_outputs(g, g.call(called, {x, step}));
  const Arrays found = run_everywhere(g, {{"x", Array(kRows * kCols, 1)}, {"step", {3}}});
  std::set<std::vector<float>> masks;
  for (const auto& [name, values] : found) masks.insert(values);
  EXPECT_EQ(masks.size(), found.size());
}

/// Operations that take the same step share the key of their random numbers, and others do not.
TEST(Substreams, AreTakenWithTheStepOfEachOperation) {
  const auto function = std::make_shared<Graph>();
  const Value x = function->input("x", {kRows, kCols}), one = function->input("one", {}, Type::u32),
              other = function->input("other", {}, Type::u32);
  for (const Value& step : {one, one, other, one})
    function->output(fmt::format("y{}", function->outputs().size()), dropout(x, 0.5, step, 7));
  Graph g;
  const Value in = g.input("x", {kRows, kCols}), first = g.input("first", {}, Type::u32),
              second = g.input("second", {}, Type::u32);
  for (int call = 0; call < 2; ++call) add_outputs(g, g.call(function, {in, first, second}));
  run_everywhere(g, {{"x", Array(kRows * kCols, 1)}, {"first", {3}}, {"second", {4}}});
}

/// A step that is set has the place of the step before.
TEST(Substreams, AreTakenWithAStepThatIsSetBetweenOperations) {
  Graph g;
  const Value x = g.input("x", {kRows, kCols}), step = g.state("step", {Type::u32, {}, {}, {}});
  add_outputs(g, g.call(dropping(), {x, step}));
  add_outputs(g, {dropout(x, 0.5, step, 7)});
  const Value next = cast(cast(step, Type::f32) + 1, Type::u32);
  g.assign(step, next);
  add_outputs(g, {dropout(x, 0.5, next, 7)});
  expect_like_float64(g, {{"x", Array(kRows * kCols, 1)}});
}

TEST(Substreams, AreThoseOfTheNumberOfACall) {
  const auto function = dropping();
  Graph g;
  const Value x = g.input("x", {kRows, kCols}), step = g.input("step", {}, Type::u32);
  for (const uint32_t number : {5U, 5U, 6U}) add_outputs(g, g.call(function, {x, step}, {.number = number}));
  const Arrays found = run_everywhere(g, {{"x", Array(kRows * kCols, 1)}, {"step", {3}}});
  EXPECT_EQ(found.at("y0"), found.at("y1"));
  EXPECT_NE(found.at("y0"), found.at("y2"));
}

TEST(Substreams, OfTheFirstReplicaAreThoseWithoutReplicas) {
  std::vector<std::vector<float>> found;
  for (const uint32_t replicas : {1U, 2U}) {
    Graph g;
    const Value x = g.input("x", {kRows, kCols}), step = g.input("step", {}, Type::u32);
    add_outputs(g, g.call(dropping(dropping()), {x, step}));
    g.replicate(replicas);
    Session session(g, Machine::find("m2000").with("chips", replicas).with("tiles", 8));
    found.push_back(
        session.run({{"x", std::vector<float>(replicas * kRows * kCols, 1)}, {"step", {3}}}).at("y0"));
  }
  found[1].resize(found[0].size());
  EXPECT_EQ(found[0], found[1]);
}

TEST(Substreams, OfACallWithoutANumberAreThoseOfNoNumber) {
  const auto function = dropping();
  Graph g;
  const Value x = g.input("x", {kRows, kCols}), step = g.input("step", {}, Type::u32);
  add_outputs(g, g.call(function, {x, step}));
  for (uint32_t number = 1; number < 6; ++number)
    add_outputs(g, g.call(function, {x, step}, {.number = number}));
  const Arrays found = run_everywhere(g, {{"x", Array(kRows * kCols, 1)}, {"step", {3}}});
  for (uint32_t number = 1; number < 6; ++number)
    EXPECT_NE(found.at("y0"), found.at(fmt::format("y{}", number)));
}

TEST(Substreams, RefuseWhatHasNone) {
  Graph g;
  const Value x = g.input("x", {kRows, kCols}), step = g.input("step", {}, Type::u32);
  for (const uint32_t number : {0U, ~0U})
    EXPECT_TRUE(says(error_of<UsageError>([&] {
                       g.call(dropping(), {x, step}, {.number = number});
                     }),
                     fmt::format("its number is {}; it must be at least 1", number)));
}

/// Gradients are means over micro-batches and replicas: an element is kept in those that drew it.
class OfATrainedParameter : public testing::TestWithParam<bool> {};

TEST_P(OfATrainedParameter, DifferBetweenMicroBatchesAndReplicas) {
  const bool is_called = GetParam();
  for (const uint32_t replicas : {1U, 2U})
    for (const uint32_t micro_batches : {1U, 3U}) {
      SCOPED_TRACE(fmt::format("{} replicas, {} micro-batches", replicas, micro_batches));
      Graph g;
      const Value w = g.parameter("w", {kRows, kCols}, Initial::constant(1));
      const Value step = g.input("step", {}, Type::u32);
      const Value y = is_called ? g.call(dropping(), {w, step})[0] : dropout(w, 0.5, step, 7);
      const Value loss = sum(y);
      g.output("loss", loss);
      add_training(loss, {.optimizer = Sgd{}, .micro_batches = micro_batches, .replicas = replicas});
      const Machine machine =
          replicas == 1 ? Machine::host(2) : Machine::find("m2000").with("chips", 2).with("tiles", 8);
      Session session(g, machine);
      WideArrays inputs = {{"step", Array(g.bound_type(step.id).elements(), 3)}, {"lr", {0.25}}},
                 state = {{"w", Array(kRows * kCols, 1)}};
      const WideArrays expected = evaluate(g, inputs, state);
      EXPECT_NEAR(session.run(narrowed(inputs)).at("loss")[0], expected.at("loss")[0], 1e-3);
      std::map<float, uint32_t> count;
      const std::vector<float> trained = session.get("w");
      for (size_t i = 0; i < trained.size(); ++i) {
        EXPECT_NEAR(trained[i], state.at("w")[i], 1e-5);
        ++count[std::round(trained[i] * 1e4F)];
      }
      EXPECT_EQ(count.size(), replicas * micro_batches + 1) << "drawn by none of them, by one, …, by all";
    }
}

/// A function of spiking neurons that all fire in each step; lists hold one in five.
std::shared_ptr<const Graph> overflowing() {
  constexpr uint32_t kSteps = 4, kBatch = 2, kInputs = 3, kNeurons = 30;
  auto function = std::make_shared<Graph>();
  const Spikes in = spike_input(*function, "in", kSteps, kBatch, kInputs);
  const Value step = function->input("step", {}, Type::u32);
  const std::vector<SpikingLayer> layers = {{.inputs = kInputs, .neurons = kNeurons}};
  std::vector<Value> parameters;
  for (const SpikingParameter& parameter : parameters_of(layers[0]))
    parameters.push_back(function->constant(
        "", {parameter.rows, parameter.cols},
        std::vector<float>(parameter.elements(), parameter.name == "weight" ? 2.0F : 0.5F)));
  const SpikingResults results =
      spiking(in, layers, parameters, {.capacities = {kNeurons / 5}, .step = step, .seed = 7});
  function->output("counts", spike_counts(results.spikes[0], kNeurons));
  return function;
}

/// Lists in which all inputs fire.
WideArrays all_fire(uint32_t micro_batches = 1) {
  WideArrays arrays;
  for (uint32_t i = 0; i < micro_batches * 4 * 2; ++i) {
    for (const double id : {0, 1, 2}) arrays["in.ids"].push_back(id);
    for (const double num : {3, 3}) arrays["in.num"].push_back(num);
  }
  arrays["step"] = Array(micro_batches, 3);
  return arrays;
}

TEST(Substreams, OfSpikingLayersDifferBetweenCallsAndPasses) {
  const auto function = overflowing();
  Graph g;
  const Spikes in = spike_input(g, "in", 4, 2, 3);
  const std::vector<Value> given = {in.ids, in.num, g.input("step", {}, Type::u32)};
  for (int call = 0; call < 2; ++call) add_outputs(g, g.call(function, given));
  add_outputs(g, g.loop(function, given, {.count = 3}));
  add_outputs(g, g.loop(function, given, {.count = 3, .summed = {"counts"}}));
  const Arrays found = run_everywhere(g, all_fire());
  std::set<std::vector<float>> counts;
  for (const auto& [name, values] : found) counts.insert(values);
  EXPECT_EQ(counts.size(), found.size());
  EXPECT_TRUE(std::ranges::any_of(found.at("y3"), [](float count) { return std::fmod(count, 3.0F) != 0; }));
}

TEST(Substreams, OfSpikingLayersDifferBetweenMicroBatches) {
  const auto function = overflowing();
  Graph g = *function;
  g.repeat_for_micro_batches(2);
  const Arrays found = run_everywhere(g, all_fire(2));
  EXPECT_TRUE(
      std::ranges::any_of(found.at("counts"), [](float count) { return std::fmod(count, 2.0F) != 0; }));
}

INSTANTIATE_TEST_SUITE_P(Substreams, OfATrainedParameter, testing::Bool());

TEST(Substreams, GradientsDropWhatTheFunctionDropped) {
  Graph g;
  const Value x = g.input("x", {kRows, kCols}), step = g.input("step", {}, Type::u32);
  const std::vector<Value> y = g.call(dropping(dropping()), {x, step});
  add_outputs(g, {y[0], y[1], *gradients(sum(y[0]), {x})[0], *gradients(sum(y[1]), {x})[0]});
  const Arrays found = run_everywhere(g, {{"x", Array(kRows * kCols, 1)}, {"step", {3}}});
  EXPECT_EQ(found.at("y0"), found.at("y2"));
  EXPECT_EQ(found.at("y1"), found.at("y3"));
}

}  // namespace
}  // namespace tessera::graph
