// Stages of whole layers, which a training step names or balances.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/gradients.h>
#include <tessera/pipeline.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/loop.h"
#include "graph/operation.h"
#include "graph/stages.h"
#include "graph/transforms/transforms.h"
#include "staged_networks.h"
#include "support/error_of.h"

namespace tessera::graph {
namespace {

using staged::chips;
using staged::Steps;
using staged::steps_of;
using testing::HasSubstr;

template <class Act>
std::string message_of(const Act& act) {
  return test::error_of<UsageError>(act);
}

/// Four layers, on two stages that calls name, or that training names or balances.
Graph four_layers(TrainingOptions options, bool by_calls = false) {
  auto body = std::make_shared<Graph>();
  const Value x = body->input("x", {6, 16}), w = body->input("w", {16, 16});
  body->output("y", x + tanh(linear(x, w)));
  Graph g;
  Value h = g.input("x", {6, 16});
  for (uint32_t i = 0; i < 4; ++i) {
    const Value weight = g.parameter(fmt::format("layers.{}.weight", i), {16, 16}, Initial::normal(0.2));
    h = g.call(body, {h, weight}, {.stage = by_calls ? std::optional(i / 2) : std::nullopt})[0];
  }
  const Value loss = mean(square(h));
  g.output("loss", loss);
  options.micro_batches = 8;
  add_training(loss, options);
  return g;
}

TEST(StagesOfLayers, GiveTheBitsOfStagesOfCallsAndOfNone) {
  const Steps whole = steps_of(four_layers({}), Machine::host(2));
  for (const PipelineKind kind : {PipelineKind::one_forward_one_backward, PipelineKind::zero_bubble}) {
    SCOPED_TRACE(name_of(kind));
    const Graph given = four_layers({.stages = {.of_layers = {{"layers.2", 1}}}, .pipeline = {kind}});
    const Graph balanced = four_layers({.stages = {.count = 2}, .pipeline = {kind}});
    for (const Graph* graph : {&given, &balanced}) {
      const Steps found = steps_of(*graph, Machine::host(2));
      EXPECT_EQ(found.results, whole.results);
      EXPECT_EQ(found.state, whole.state);
      EXPECT_EQ(Session(*graph, chips(2)).cost().lanes.size(), 2U);
    }
    const Steps by_calls = steps_of(four_layers({.pipeline = {kind}}, true), chips(2));
    const Steps found = steps_of(given, chips(2));
    EXPECT_EQ(found.results, by_calls.results);
    EXPECT_EQ(found.state, by_calls.state);
  }
}

/// Four layers that are repeated, each followed by a loop without parameters, on two stages that loops name,
/// or that training names.
Graph repeated_layers(TrainingOptions options, bool by_loops = false) {
  auto layer = std::make_shared<Graph>(), map = std::make_shared<Graph>();
  const Value x = layer->input("x", {6, 16}), w = layer->input("w", {16, 16});
  layer->output("y", x + tanh(linear(tanh(x), w)));
  map->output("y", tanh(map->input("x", {6, 16})) * 0.5);
  Graph g;
  Value h = g.input("x", {6, 16});
  for (uint32_t i = 0; i < 4; ++i) {
    const Value weight = g.parameter(fmt::format("layers.{}.weight", i), {16, 16}, Initial::normal(0.2));
    Loop loop{.count = 3, .carried = {{"x", "y"}}};
    if (by_loops) loop.stage = i / 2;
    h = g.loop(map, g.loop(layer, {h, weight}, loop), loop)[0];
  }
  const Value loss = mean(square(h));
  g.output("loss", loss);
  options.micro_batches = 8;
  add_training(loss, options);
  return g;
}

/// The state that the first pass of a loop takes comes from the layer before, and the gradient that the last
/// pass takes comes from the layer after.
TEST(StagesOfLayers, HaveLoopsAndTheirGradientsAsAWhole) {
  const Graph g = repeated_layers(
      {.stages = {.of_layers = {{"layers.2", 1}}}, .pipeline = {PipelineKind::one_forward_one_backward}});
  const auto micro_batches = std::ranges::find_if(g.nodes(), is_loop);
  ASSERT_NE(micro_batches, g.nodes().end());
  const Graph& body = *micro_batches->body;
  const auto index = static_cast<uint32_t>(micro_batches - g.nodes().begin());
  const Stages stages = stages_of(g).loops.at(index);
  std::vector<uint32_t> forward, backward;
  for (const auto& [n, inside] : stages.loops) {
    (body.nodes()[n].backward ? backward : forward).push_back(stages.nodes[n]);
    EXPECT_THAT(inside.nodes, testing::Each(stages.nodes[n])) << "node " << n;
  }
  EXPECT_EQ(forward, (std::vector<uint32_t>{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(backward, (std::vector<uint32_t>{1, 1, 1, 1, 0, 0, 0, 0}));
  for (const StagePart& part : parts_of_stages(body, stages))
    for (const uint32_t n : part.nodes)
      if (is_loop(body.nodes()[n])) {
        EXPECT_EQ(part.stage, stages.nodes[n]);
        EXPECT_EQ(part.is_backward(), body.nodes()[n].backward);
      }
}

TEST(StagesOfLayers, GiveTheBitsOfStagesOfLoopsAndOfNone) {
  const Steps whole = steps_of(repeated_layers({}), Machine::host(2));
  for (const PipelineKind kind : {PipelineKind::one_forward_one_backward, PipelineKind::zero_bubble}) {
    SCOPED_TRACE(name_of(kind));
    const Graph given = repeated_layers({.stages = {.of_layers = {{"layers.2", 1}}}, .pipeline = {kind}});
    const Graph balanced = repeated_layers({.stages = {.count = 2}, .pipeline = {kind}});
    for (const Graph* graph : {&given, &balanced}) {
      const Steps found = steps_of(*graph, Machine::host(2));
      EXPECT_EQ(found.results, whole.results);
      EXPECT_EQ(found.state, whole.state);
    }
    const Steps by_loops = steps_of(repeated_layers({.pipeline = {kind}}, true), chips(2));
    const Steps found = steps_of(given, chips(2));
    EXPECT_EQ(found.results, by_loops.results);
    EXPECT_EQ(found.state, by_loops.state);
  }
}

/// Hosts join the elementwise operations of layers, and move them after others, unless there are stages.
TEST(StagesOfLayers, AreBalancedInTheOrderOfTheGraph) {
  const auto trained = [](std::optional<uint32_t> stages) {
    Graph g;
    const auto scaled = [&](const std::string& name, Value h) {
      return h * g.parameter(name, {16}, Initial::normal(0.5));
    };
    const Value x = g.input("x", {6, 16}), gate = scaled("gate", x);
    Value h = tanh(linear(x, g.parameter("w", {16, 16}, Initial::normal(0.2)))) + gate;
    for (const std::string name : {"a", "b"}) h = tanh(scaled(name, h));
    const Value loss = mean(square(h));
    g.output("loss", loss);
    add_training(loss, {.micro_batches = 8,
                        .stages = {.count = stages},
                        .pipeline = {PipelineKind::one_forward_one_backward}});
    return g;
  };
  const Steps whole = steps_of(trained({}), Machine::host(2));
  for (const uint32_t stages : {1U, 2U, 4U}) {
    SCOPED_TRACE(stages);
    const Steps found = steps_of(trained(stages), Machine::host(2));
    EXPECT_EQ(found.results, whole.results);
    EXPECT_EQ(found.state, whole.state);
  }
  EXPECT_EQ(Session(trained(2), chips(2)).cost().lanes.size(), 2U);
  Graph apart = trained(2);
  transform(apart, session_transforms(), Machine::host(2).model());
  for (const Node& node : std::ranges::find_if(apart.nodes(), is_loop)->body->nodes())
    EXPECT_NE(node.operation->name, "expression");
}

TEST(StagesOfLayers, NameWhatTheyCannotBe) {
  const auto message = [](const LayerStages& stages, bool by_calls = false) {
    return message_of([&] { four_layers({.stages = stages}, by_calls); });
  };
  EXPECT_THAT(message({.count = 5}),
              HasSubstr("4 layers with parameters of their own is to have 5 stages: it can have 1 to 4"));
  EXPECT_THAT(message({.of_layers = {{"layer.2", 1}}}),
              HasSubstr("'layer.2', and no layer has a parameter of this name: layers begin with "
                        "'layers.0.weight', 'layers.1.weight'"));
  EXPECT_THAT(message({.of_layers = {{"layers.1", 1}, {"layers.3", 0}}}),
              HasSubstr("'layers.3' is to be on stage 0, and layers before it are on stage 1"));
  EXPECT_THAT(message({.of_layers = {{"layers.1", 2}}}),
              HasSubstr("stage 1 has no layers: 'layers.1' is to be on stage 2"));
  EXPECT_THAT(message({.of_layers = {{"layers.0", 1}}}), HasSubstr("stage 0 has no layers"));
  EXPECT_THAT(message({.of_layers = {{"layers.1", 1}, {"layers.1.weight", 2}}}),
              HasSubstr("'layers.1' and 'layers.1.weight' begin with the same layer"));
  EXPECT_THAT(message({.count = 2, .of_layers = {{"layers.1", 1}}}),
              HasSubstr("as a number and by layers: leave out one"));
  EXPECT_THAT(message({.of_layers = {{"layers.1", 2}, {"layers.2", 1}}}),
              HasSubstr("'layers.2' is to be on stage 1, and layers before it are on stage 2"));
  EXPECT_THAT(message({.count = 2}, true), HasSubstr("as its calls and loops name them"));
  const auto divided_again = [](const auto& divide) {
    return message_of([&] {
      Graph g;
      const Value x = g.input("x", {4, 4}), w = g.parameter("w", {4, 4}), v = g.parameter("v", {4, 4});
      divide(g, x, w);
      const Value loss = mean(linear(g.value(g.outputs().at("h")), v));
      add_training(loss, {.stages = {.count = 2}});
    });
  };
  EXPECT_THAT(divided_again([](Graph& g, Value x, Value w) {
                g.output("h", linear(x, w));
                g.balance_stages(1);
              }),
              HasSubstr("by begin_stages or balance_stages"));
  EXPECT_THAT(divided_again([](Graph& g, Value x, Value w) {
                auto body = std::make_shared<Graph>();
                body->output("y", linear(body->input("x", {4, 4}), body->input("w", {4, 4})));
                g.output("h", g.call(body, {x, w}, {.stage = 0})[0]);
              }),
              HasSubstr("as its calls and loops name them"));
}

}  // namespace
}  // namespace tessera::graph
