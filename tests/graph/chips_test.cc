// Networks on machines of several chips: replicas, stages, and where networks are placed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/estimate.h>
#include <tessera/gradients.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "graph/stages.h"
#include "graph/transforms/transforms.h"
#include "lower/placement.h"
#include "lower/stage_balance.h"
#include "networks.h"
#include "support/error_of.h"

namespace tessera::graph {
namespace {

using testing::HasSubstr;

/// Chips of a few tiles.
Machine chips(uint32_t count, uint32_t tiles_each = 8) {
  return Machine::find("m2000").with("chips", count).with("tiles", tiles_each);
}

void expect_steps_like_float64(const Classifier& network, Session& session, uint32_t steps) {
  graph::expect_steps_like_float64(network.graph, session, steps,
                                   [&](uint32_t step) { return network.inputs(step); });
}

/// Runs a graph with random x, and compares it with float64.
void expect_run_like_float64(const Graph& graph, Session& session) {
  const WideArrays inputs = {{"x", random_values(graph.bound_type(graph.inputs()[0]), -1, 1, 1, 1, 0)}};
  WideArrays state = widened(session.state());
  expect_each_near(session.run(narrowed(inputs)), evaluate(graph, inputs, state), 1e-5);
}

double total(const std::map<std::string, double>& cycles) {
  double sum = 0;
  for (const auto& [phase, count] : cycles) sum += count;
  return sum;
}

TEST(DataParallel, StepsAreThoseOfFloat64) {
  const TrainingOptions four = {.optimizer = Sgd{.momentum = 0.9}, .replicas = 4};
  const TrainingOptions two = {
      .optimizer = Adam{.epsilon = 1e-3}, .clip_norm = 0.5, .micro_batches = 2, .replicas = 2};
  for (const auto& [layers, options] :
       {std::pair(Layers::dense, two), {Layers::sparse, four}, {Layers::dynamic, four}}) {
    SCOPED_TRACE(static_cast<int>(layers));
    Classifier network(layers);
    add_training(network.loss, options);
    Session session(network.graph, chips(4));
    ASSERT_TRUE(session.fits());
    expect_steps_like_float64(network, session, 2);
  }
}

TEST(DataParallel, IsTheMeanOverAllRows) {
  // Replicas take the same rows as micro-batches, which run one after the other.
  Classifier replicated(Layers::dense), repeated(Layers::dense);
  add_training(replicated.loss, {.optimizer = Sgd{.momentum = 0.9}, .replicas = 4});
  add_training(repeated.loss, {.optimizer = Sgd{.momentum = 0.9}, .micro_batches = 4});
  EXPECT_EQ(replicated.graph.bound_type(replicated.graph.find("x").id).shape, (Shape{80, 48}));
  EXPECT_EQ(replicated.graph.bound_type(replicated.graph.find("lr").id).shape, Shape{});
  WideArrays of_replicas = widened(initial_state(replicated.graph)), of_batches = of_replicas;
  for (uint32_t step = 1; step <= 3; ++step) {
    const WideArrays inputs = replicated.inputs(step);
    EXPECT_NEAR(evaluate(replicated.graph, inputs, of_replicas).at("loss")[0],
                evaluate(repeated.graph, inputs, of_batches).at("loss")[0], 1e-12);
  }
  for (const auto& [name, values] : of_batches)
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], of_replicas.at(name)[i], 1e-12);
}

TEST(DataParallel, TakesTheTimeOfAReplicaAndItsSums) {
  Classifier one(Layers::dense), four(Layers::dense);
  add_training(one.loss, {});
  add_training(four.loss, {.replicas = 4});
  const RunCost alone = Session(one.graph, chips(1)).cost();
  Session session(four.graph, chips(4));
  const RunCost cost = session.cost();
  EXPECT_GT(cost.seconds, alone.seconds);
  EXPECT_LT(cost.seconds, 3 * alone.seconds);
  ASSERT_EQ(cost.chips.size(), 4u);
  for (const ChipCost& chip : cost.chips) {
    EXPECT_EQ(total(chip.cycles), total(cost.cycles));
    EXPECT_EQ(chip.bytes, cost.chips[0].bytes);
  }
  EXPECT_FALSE(cost.links.empty());
  const Arrays inputs = narrowed(four.inputs(1));
  EXPECT_THAT(session.program(), HasSubstr("main of 4 replicas"));
  EXPECT_THAT(session.program(), HasSubstr("all-reduce mean over replicas by "));
  session.run(inputs);
  EXPECT_EQ(session.cost().seconds, cost.seconds);
}

TEST(DataParallel, OutputsHaveTheRowsOfAllReplicas) {
  Graph g;
  const Value x = g.input("x", {5, 16});
  const Value h = relu(linear(x, g.parameter("w", {12, 16}, Initial::normal(0.3))));
  g.output("h", h);
  g.replicate(3);
  Session session(g, chips(3 * 2, 4).with("chips", 6));
  EXPECT_EQ(session.graph().bound_type(h.id).elements(), 3u * 5 * 12);
  expect_run_like_float64(g, session);
}

TEST(DataParallel, NeedsChips) {
  Classifier network(Layers::dense);
  add_training(network.loss, {.replicas = 3});
  EXPECT_THROW(Session(network.graph, chips(4)), UsageError);
}

/// On a host replicas take turns.
TEST(DataParallel, RunsOnAHost) {
  for (const auto& [layers, shard_from] :
       std::initializer_list<std::pair<Layers, std::optional<uint64_t>>>{{Layers::dense, {}},
                                                                         {Layers::dense, 30},
                                                                         {Layers::sparse, {}},
                                                                         {Layers::sparse, 30},
                                                                         {Layers::dynamic, {}}}) {
    SCOPED_TRACE(static_cast<int>(layers));
    Classifier network(layers);
    add_training(network.loss, {.optimizer = Adam{.epsilon = 1e-3},
                                .clip_norm = 0.5,
                                .micro_batches = 2,
                                .replicas = 2,
                                .shard_from = shard_from});
    Session session(network.graph, Machine::host(2));
    expect_steps_like_float64(network, session, 2);
    EXPECT_TRUE(session.cost().chips.empty());
  }
}

TEST(DataParallel, GivesTheScalarsOfTheFirstReplicaOfAHost) {
  Graph g;
  const Value h = relu(linear(g.input("x", {5, 16}), g.parameter("w", {12, 16}, Initial::normal(0.3))));
  g.output("h", h);
  g.output("sum", sum(h));
  g.output("total", sum_over_replicas(sum(h)));
  g.replicate(3);
  Session session(g, Machine::host(2));
  expect_run_like_float64(g, session);
}

/// A layer as a function of x, its weight and its bias.
std::shared_ptr<const Graph> layer_of(uint32_t rows, uint32_t inputs, uint32_t outputs) {
  auto function = std::make_shared<Graph>();
  const Value x = function->input("x", {rows, inputs}), weight = function->input("weight", {outputs, inputs});
  function->output("y", linear(x, weight, function->input("bias", {outputs})));
  return function;
}

/// Two layers, each on a stage: the first one follows its input.
struct TwoStages {
  Graph graph;
  Value loss;

  TwoStages() {
    const Value x = graph.input("x", {12, 48});
    const Value h = gelu(layer(graph, "first", x, 64, Layers::dense));
    const Value weight = graph.parameter("second.weight", {32, 64}, Initial::normal(0.2)),
                bias = graph.parameter("second.bias", {32});
    const Value y = graph.call(layer_of(12, 64, 32), {h, weight, bias}, {.stage = 1})[0];
    loss = mean_squared_error(y, graph.input("target", {12, 32}));
    graph.output("loss", loss);
  }
  Arrays inputs(uint32_t step) const {
    Arrays arrays;
    for (ValueId id : graph.inputs())
      arrays[graph.info(id).name] = graph.info(id).name == "lr"
                                        ? std::vector<float>{0.0625}
                                        : narrowed(random_values(graph.bound_type(id), -1, 1, 1, step, id));
    return arrays;
  }
};

TEST(Stages, LieOnTheirOwnChips) {
  for (const uint32_t micro_batches : {1U, 3U}) {
    TwoStages network;
    add_training(network.loss, {.optimizer = Sgd{.momentum = 0.9}, .micro_batches = micro_batches});
    Session session(network.graph, chips(2));
    graph::expect_steps_like_float64(network.graph, session, 3,
                                     [&](uint32_t step) { return widened(network.inputs(step)); });
    const RunCost cost = session.cost();
    ASSERT_EQ(cost.chips.size(), 2u);
    EXPECT_EQ(cost.links.size(), 2u);  // activations one way, gradients the other
    double operations = 0;
    for (const OperationCost& operation : cost.operations) operations += operation.seconds;
    EXPECT_GT(operations, 0.5 * cost.seconds);
    EXPECT_TRUE(cost.placements.empty());
  }
}

TEST(Stages, ShareTheChipsOfAMachineEqually) {
  TwoStages network;
  EXPECT_EQ(Session(network.graph, chips(4)).cost().chips.size(), 4u);
  EXPECT_TRUE(Session(network.graph, chips(1)).cost().chips.empty());
  EXPECT_NO_THROW(Session(network.graph, Machine::host(2)));
  Graph three = network.graph;
  auto twice = std::make_shared<Graph>();
  twice->output("y", twice->input("x", Shape{}) * 2);
  three.output("more", three.call(twice, {three.value(network.loss.id)}, {.stage = 2})[0]);
  EXPECT_THAT(test::error_of<UsageError>([&] { Session(three, chips(4)); }),
              HasSubstr("3 stages cannot share the 4 chips of m2000 equally"));
}

/// Layers of one width.
Graph layers_of(uint32_t count, uint32_t width) {
  Graph g;
  Value h = g.input("x", {8, width});
  for (uint32_t i = 0; i < count; ++i)
    h = relu(linear(h, g.parameter("w" + std::to_string(i), {width, width}, Initial::normal(0.05))));
  g.output("y", h);
  return g;
}

/// The stages of the operations that take a weight: forward, gradients and update.
std::set<uint32_t> stages_of_weight(const std::string& name, const Graph& g, const Stages& stages) {
  std::set<uint32_t> found;
  for (size_t n = 0; n < g.nodes().size(); ++n)
    for (const ValueId input : g.nodes()[n].inputs)
      if (g.info(input).name == name) found.insert(stages.nodes[n]);
  return found;
}

/// Layers whose gradients take about as long as their sums over slow links.
Graph trained_layers(const TrainingOptions& options) {
  Graph g;
  Value h = g.input("x", {64, 128});
  for (uint32_t i = 0; i < 4; ++i)
    h = relu(linear(h, g.parameter("w" + std::to_string(i), {128, 128}, Initial::normal(0.1))));
  const Value loss = mean_squared_error(h, g.input("target", {64, 128}));
  g.output("loss", loss);
  add_training(loss, options);
  return g;
}

TEST(DataParallel, SumsGradientsWhileOthersAreComputed) {
  const Machine machine = chips(2).with("link_gb_per_second", 1);
  for (const auto& [micro_batches, shard_from] :
       std::initializer_list<std::pair<uint32_t, std::optional<uint64_t>>>{
           {1, {}}, {1, 0}, {3, {}}, {2, 0}}) {
    SCOPED_TRACE(std::to_string(micro_batches) + (shard_from ? " divided" : ""));
    std::vector<Arrays> results;
    std::vector<RunCost> costs;
    for (const bool overlap : {false, true}) {
      const Graph g = trained_layers({.optimizer = Sgd{.momentum = 0.9},
                                      .clip_norm = 1,
                                      .micro_batches = micro_batches,
                                      .replicas = 2,
                                      .overlap = overlap,
                                      .shard_from = shard_from});
      Session session(g, machine);
      ASSERT_TRUE(session.fits());
      EXPECT_EQ(session.program().find("beside it") != std::string::npos, overlap);
      WideArrays inputs = {{"lr", {0.05}}};
      for (const ValueId id : g.inputs())
        if (g.info(id).name != "lr")
          inputs[g.info(id).name] = random_values(g.bound_type(id), -1, 1, 1, 3, id);
      for (uint32_t step = 0; step < 2; ++step) {
        Arrays result = session.run(narrowed(inputs));
        result.merge(session.state());
        results.push_back(std::move(result));
      }
      costs.push_back(session.cost());
    }
    EXPECT_EQ(results[0], results[2]);
    EXPECT_EQ(results[1], results[3]);
    EXPECT_LT(costs[1].seconds, costs[0].seconds);
    // The hidden part of a sum is the time of other operations.
    const auto of_operations = [](const RunCost& cost) {
      double seconds = 0;
      for (const OperationCost& operation : cost.operations) seconds += operation.seconds;
      return seconds;
    };
    EXPECT_LT(of_operations(costs[1]), of_operations(costs[0]));
    // With several sums, buffers and messages differ, but the same number of bytes goes over the links.
    ASSERT_EQ(costs[1].links.size(), costs[0].links.size());
    for (size_t i = 0; i < costs[0].links.size(); ++i)
      EXPECT_EQ(costs[1].links[i].bytes, costs[0].links[i].bytes);
  }
}

TEST(DataParallel, SumsGradientsApartFromOtherSums) {
  // Gradients of the last layer are computed while the sum of the norm's gradient, which is small, takes a
  // tree.
  std::vector<Arrays> states;
  for (const bool overlap : {false, true}) {
    Graph g;
    const auto layer = [&](const std::string& name, Value x, uint32_t outputs) {
      return linear(x, g.parameter(name, {outputs, 128}, Initial::normal(0.1)));
    };
    const Value h = relu(layer("first", g.input("x", {16, 128}), 128));
    const Value y = layer("last", h - mean_over_replicas(mean(h, {0})), 4);
    const Value loss = mean_squared_error(y, g.input("target", {16, 4}));
    g.output("loss", loss);
    add_training(loss, {.replicas = 4, .overlap = overlap});
    Session session(g, chips(4));
    WideArrays inputs = {{"lr", {0.5}}};
    for (const std::string name : {"x", "target"})
      inputs[name] = random_values(g.bound_type(g.find(name).id), -1, 1, 1, 3, g.find(name).id);
    session.run(narrowed(inputs));
    states.push_back(session.state());
  }
  EXPECT_EQ(states[0], states[1]);
}

TEST(DataParallel, SumsTheGradientsOfSmallNetworksAtOnce) {
  Classifier network(Layers::dense);
  add_training(network.loss, {.replicas = 4});
  const std::string program = Session(network.graph, chips(4)).program();
  const size_t first = program.find("all-reduce");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(program.find("all-reduce", first + 1), std::string::npos);
}

TEST(Placement, OfWholeLayersFollowsTheirParameters) {
  Classifier network(Layers::dense);
  add_training(network.loss, {.optimizer = Sgd{.momentum = 0.9}});
  const Graph& g = network.graph;
  const WholeLayers layers = whole_layers_of(g);
  ASSERT_EQ(layers.count(), 3U);
  const Stages stages = stages_of_layers(layers, {0, 1});
  EXPECT_EQ(stages.count(), 2U);
  EXPECT_EQ(stages_of_weight("first.weight", g, stages), std::set{0U});
  EXPECT_EQ(stages_of_weight("second.weight", g, stages), std::set{1U});
  EXPECT_EQ(stages_of_weight("third.weight", g, stages), std::set{1U});
}

TEST(Stages, HaveTheGradientsAndUpdatesOfWhatTheyTake) {
  TwoStages network;
  add_training(network.loss, {.optimizer = Adam{}, .clip_norm = 1});
  const Graph& g = network.graph;
  const Stages stages = stages_of(g);
  EXPECT_EQ(stages.count(), 2u);
  EXPECT_EQ(stages_of_weight("first.weight", g, stages), std::set{0U});
  EXPECT_EQ(stages_of_weight("second.weight", g, stages), std::set{1U});
  for (const auto& [state, value] : g.assignments())
    EXPECT_EQ(stage_of(g, stages, value), g.info(state).name.starts_with("first") ? 0U : 1U);
}

TEST(Stages, AreNumbersOfCallsAndLoops) {
  TwoStages network;
  Node call = network.graph.nodes().back();
  for (const Node& node : network.graph.nodes())
    if (node.body) call = node;
  for (const int64_t stage : {int64_t{-1}, int64_t{1} << 32}) {
    call.attributes["stage"] = stage;
    EXPECT_THAT(test::error_of<UsageError>([&] {
                  std::vector<Value> inputs;
                  for (const ValueId id : call.inputs) inputs.push_back(network.graph.value(id));
                  network.graph.apply(call, inputs);
                }),
                HasSubstr("a stage is "));
  }
}

TEST(Stages, GiveTheWeightsOfAnyOfThem) {
  Graph g;
  const Value x = g.input("x", {4, 33});
  const Value w = g.parameter("w", {40, 33}, Initial::normal(1)), b = g.parameter("b", {40});
  g.output("y", g.call(layer_of(4, 33, 40), {x, w, b}, {.stage = 1})[0]);
  g.output("weight", w);
  Session session(g, Machine::find("m2000").with("tiles", 4).with("chips", 2));
  EXPECT_EQ(session.run(Arrays{{"x", std::vector<float>(4 * 33, 1)}}).at("weight"), session.get("w"));
}

TEST(Placement, OfWholeLayersDividesBytes) {
  Graph g;
  const Value x = g.input("x", {4, 32}, Type::f16);
  const Value half = cast(linear(x, g.parameter("half", {32, 32}, {}, Type::f16)), Type::f32);
  const Value first = linear(half, g.parameter("first", {32, 32}));
  g.output("y", linear(first, g.parameter("second", {32, 32})));
  const WholeLayers layers = whole_layers_of(g);
  std::vector<LayerCost> costs;
  for (const LayerBytes& bytes : layers.bytes) costs.push_back({.bytes = bytes});
  ASSERT_EQ(costs.size(), 3U);
  EXPECT_EQ(costs[0].bytes.kept, 2048U);
  EXPECT_EQ(costs[1].bytes.kept, 4096U);
  const std::vector<uint32_t> cut = balanced_stages(costs, 2, 0, 1);
  EXPECT_EQ(stages_of_layers(layers, cut).nodes, (std::vector<uint32_t>{0, 0, 0, 1}));
}

/// Parameters that are cast, all before the first product; the last product takes the first weight again.
TEST(Placement, OfWholeLayersHasCastsWithWhatTakesThem) {
  Graph g;
  std::vector<Value> weights, results;
  for (const std::string name : {"first", "second", "third"})
    weights.push_back(cast(g.parameter(name, {32, 32}), Type::f16));
  weights.push_back(cast(g.find("first"), Type::f16));
  Value h = g.input("x", {4, 32}, Type::f16);
  for (const Value& weight : weights) {
    const Value bias = g.parameter("bias" + std::to_string(results.size()), {32});
    h = linear(h, weight, cast(bias, Type::f16));
    results.push_back(h);
  }
  g.output("y", h);
  const WholeLayers layers = whole_layers_of(g);
  ASSERT_EQ(layers.count(), 3U);
  EXPECT_EQ(layers.bytes[0].kept, 4U * (32 * 32 + 32));
  EXPECT_EQ(layers.bytes[2].kept, 4U * (32 * 32 + 2 * 32));
  const Stages stages = stages_of_layers(layers, {0, 1, 2});
  std::vector<uint32_t> found;
  for (const Value& result : results) found.push_back(stage_of(g, stages, result.id));
  EXPECT_EQ(found, (std::vector<uint32_t>{0, 1, 2, 2}));
  EXPECT_EQ(stages_of_weight("first", g, stages), std::set{0U});
  EXPECT_EQ(stages_of_weight("third", g, stages), std::set{2U});
}

/// The last product takes the first layer's table again, which is sent there: no micro-batch passes back.
TEST(Placement, OfWholeLayersHasPipelinesWithTiedTables) {
  constexpr uint32_t kRows = 128, kWidth = 64;
  Graph g;
  const Value table = g.parameter("table", {kWidth, kWidth}, Initial::normal(0.2));
  Value h = embedding(g.input("ids", {kRows}, Type::u32), table);
  for (uint32_t i = 0; i < 4; ++i)
    h = relu(linear(h, g.parameter("w" + std::to_string(i), {kWidth, kWidth}, Initial::normal(0.2))));
  const Value loss = mean_squared_error(linear(h, table), g.input("target", {kRows, kWidth}));
  g.output("loss", loss);
  add_training(loss, {.optimizer = Sgd{.momentum = 0.9}, .micro_batches = 8});
  Session session(g, chips(2).with("chip_sync_cycles", 3000));
  const std::vector<PlacementCost> placements = session.cost().placements;
  const auto chosen = std::ranges::find(placements, true, &PlacementCost::chosen);
  ASSERT_NE(chosen, placements.end());
  EXPECT_EQ(chosen->placement, "2 stages of whole layers on as many chips, as a pipeline");
  graph::expect_steps_like_float64(g, session, 2, [&](uint32_t step) {
    WideArrays inputs = {{"lr", {0.0625}}};
    for (const ValueId id : g.inputs())
      if (const std::string& name = g.info(id).name; name != "lr")
        inputs[name] = random_values(g.bound_type(id), -1, 1, kWidth, step, id);
    return inputs;
  });
}

TEST(Placement, OfWholeLayersHasSharedPatternsWhereTheyAreTakenFirst) {
  Graph g;
  const Pattern pattern = sparse::generate_pattern({PatternKind::random, 32, 32, 0.5, 8, 3});
  const Value shared = g.sparse_parameter("shared", pattern, Initial::normal(0.2));
  const Value first = linear(g.input("x", {4, 32}), shared);
  const Value y = linear(linear(first, g.parameter("dense", {32, 32})), shared);
  g.output("y", y);
  const WholeLayers layers = whole_layers_of(g);
  ASSERT_EQ(layers.count(), 2U);
  EXPECT_EQ(stage_of(g, stages_of_layers(layers, {0, 1}), y.id), 0U);
}

TEST(Placement, OfWholeLayersHasPenaltiesOfWeightsBesideTheLoss) {
  Graph g = layers_of(3, 32);
  const Value first = g.find("w0"), total = sum(g.value(g.outputs().at("y"))) + sum(first * first);
  g.output("total", total);
  const WholeLayers layers = whole_layers_of(g);
  ASSERT_EQ(layers.count(), 3U);
  EXPECT_EQ(stage_of(g, stages_of_layers(layers, {0, 1, 2}), total.id), 2U);
}

/// The results of a loop's passes are kept for each micro-batch; sums of gradients are kept once.
TEST(Placement, OfWholeLayersCountsWhatLoopsGive) {
  for (const uint32_t micro_batches : {1U, 2U}) {
    SCOPED_TRACE(micro_batches);
    auto body = std::make_shared<Graph>();
    const Value row = body->input("x", {4, 32});
    body->output("y", relu(linear(row, body->input("w", {32, 32}))));
    Graph g;
    const Value x = g.input("x", {12, 32}), w = g.parameter("w", {32, 32}, Initial::normal(0.1));
    const Value y = g.loop(body, {x, w}, {.count = 3, .indexed = {"x"}, .stacked = {"y"}})[0];
    const Value loss = mean_squared_error(y, g.input("target", {12, 32}));
    g.output("loss", loss);
    add_training(loss, {.micro_batches = micro_batches});
    const WholeLayers layers = whole_layers_of(g);
    ASSERT_EQ(layers.count(), 1U);
    EXPECT_EQ(layers.bytes[0].kept, 4U * 2 * 32 * 32);
    EXPECT_GE(layers.bytes[0].stash, 4U * 12 * 32);
  }
}

/// All cuts of layers into stages, by the first layer of each.
std::vector<std::vector<uint32_t>> cuts_of(uint32_t layers, uint32_t stages) {
  std::vector<std::vector<uint32_t>> cuts = {{0}};
  for (uint32_t stage = 1; stage < stages; ++stage) {
    std::vector<std::vector<uint32_t>> longer;
    for (const std::vector<uint32_t>& cut : cuts)
      for (uint32_t first = cut.back() + 1; first < layers; ++first) {
        longer.push_back(cut);
        longer.back().push_back(first);
      }
    cuts = std::move(longer);
  }
  return cuts;
}

/// The cycles of the slowest stage, and the bytes of the fullest one.
std::pair<uint64_t, uint64_t> most_of(std::span<const LayerCost> layers, const std::vector<uint32_t>& first,
                                      uint32_t in_flight) {
  std::pair<uint64_t, uint64_t> most;
  for (uint32_t stage = 0; stage < first.size(); ++stage) {
    const auto stages = static_cast<uint32_t>(first.size());
    const size_t end = stage + 1 < stages ? first[stage + 1] : layers.size();
    uint64_t cycles = 0, bytes = 0;
    for (size_t layer = first[stage]; layer < end; ++layer) {
      cycles += layers[layer].cycles;
      bytes += layers[layer].bytes.kept + std::min(in_flight, stages - stage) * layers[layer].bytes.stash;
    }
    most = {std::max(most.first, cycles), std::max(most.second, bytes)};
  }
  return most;
}

TEST(Placement, OfWholeLayersIsTheFastestOfTheCutsThatFit) {
  std::mt19937_64 random(5);
  const auto below = [&](uint64_t end) { return static_cast<uint32_t>(random() % end); };
  for (uint32_t round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    std::vector<LayerCost> layers(1 + below(8));
    for (LayerCost& layer : layers) layer = {below(50), {below(100), below(40)}};
    const auto count = static_cast<uint32_t>(layers.size());
    const uint32_t stages = 1 + below(count), in_flight = 1 + below(4);
    const uint64_t chip_bytes = below(400);
    const std::vector<std::vector<uint32_t>> cuts = cuts_of(count, stages);
    uint64_t least_bytes = std::numeric_limits<uint64_t>::max();
    for (const auto& cut : cuts) least_bytes = std::min(least_bytes, most_of(layers, cut, in_flight).second);
    std::pair best(std::numeric_limits<uint64_t>::max(), uint64_t{0});
    for (const auto& cut : cuts)
      if (const auto most = most_of(layers, cut, in_flight); most.second <= std::max(chip_bytes, least_bytes))
        best = std::min(best, most);
    const std::vector<uint32_t> first = balanced_stages(layers, stages, chip_bytes, in_flight);
    ASSERT_EQ(first.size(), stages);
    EXPECT_EQ(first[0], 0U);
    EXPECT_EQ(most_of(layers, first, in_flight), best);
  }
}

std::vector<LayerCost> costs_on_a_chip(const Graph& g, const machine::Machine& chip) {
  const Placed placed = place_graph(g, chip, {}, 1, bound::Runs::none);
  const engine::Profile profile = placed.program->estimate();
  std::vector<LayerCost> costs = costs_of_layers(g, whole_layers_of(g), placed.lowered, profile);
  uint64_t cycles = 0;
  for (const LayerCost& cost : costs) cycles += cost.cycles;
  EXPECT_GT(static_cast<double>(cycles), 0.5 * profile.cycles.total());
  EXPECT_LE(static_cast<double>(cycles), 1.001 * profile.cycles.total());
  return costs;
}

/// Updates and functions that layers share count for each of them.
TEST(Placement, KnowsTheCyclesOfEachLayer) {
  const Machine chip = chips(1);
  for (const uint32_t micro_batches : {1U, 3U}) {
    SCOPED_TRACE(micro_batches);
    Graph trained = trained_layers({.optimizer = Sgd{.momentum = 0.9}, .micro_batches = micro_batches});
    transform(trained, session_transforms(), chip.model());
    const std::vector<LayerCost> costs = costs_on_a_chip(trained, chip.model());
    ASSERT_EQ(costs.size(), 4U);
    EXPECT_LT(costs[0].cycles, costs[1].cycles);  // its input has no gradient
    EXPECT_NEAR(static_cast<double>(costs[2].cycles), static_cast<double>(costs[1].cycles),
                0.2 * static_cast<double>(costs[1].cycles));
    EXPECT_GE(costs[1].bytes.kept, 2U * 128 * 128 * 4);  // with the optimizer's state
    EXPECT_GT(costs[1].bytes.stash, 0U);
  }
  Graph called;
  Value h = called.input("x", {12, 64});
  const auto function = layer_of(12, 64, 64);
  for (const std::string name : {"a", "b", "c"})
    h = called.call(function, {h, called.parameter(name, {64, 64}, Initial::normal(0.1)),
                               called.parameter(name + ".bias", {64})})[0];
  called.output("y", h);
  transform(called, session_transforms(), chip.model());
  const std::vector<LayerCost> costs = costs_on_a_chip(called, chip.model());
  ASSERT_EQ(costs.size(), 3U);
  EXPECT_EQ(costs[1].cycles, costs[0].cycles);
  EXPECT_EQ(costs[2].cycles, costs[0].cycles);
}

/// A large table that keeps its values takes most of the bytes and little time.
TEST(Placement, OfWholeLayersBalancesCyclesInsteadOfBytesThatFit) {
  const machine::Machine machine = chips(2).model();
  Graph g;
  const Value table = g.parameter("table", {4096, 128}, Initial::normal(0.1));
  Value h = embedding(g.input("ids", {128}, Type::u32), table);
  for (uint32_t i = 0; i < 4; ++i)
    h = relu(linear(h, g.parameter("w" + std::to_string(i), {128, 128}, Initial::normal(0.1))));
  const Value loss = mean_squared_error(h, g.input("target", {128, 128}));
  g.output("loss", loss);
  add_training(loss, {.micro_batches = 8, .frozen = {table}});
  transform(g, session_transforms(), machine);
  const std::vector<LayerCost> costs = costs_on_a_chip(g, machine.part(0, machine.chip_tiles));
  ASSERT_EQ(costs.size(), 5U);
  const auto seconds_of = [&](const std::vector<uint32_t>& first) {
    const Placed placed =
        place_again(g, machine, {}, {.chips = 2, .first_layers = first, .pipeline = true}, bound::Runs::none,
                    [](std::shared_ptr<const program::Program> program, const machine::Machine& part) {
                      return compiler::compile_for_costs(std::move(program), part);
                    });
    return placed.program->seconds_of(placed.program->estimate());
  };
  const std::vector<uint32_t> by_bytes = balanced_stages(costs, 2, 0, 8);
  const std::vector<uint32_t> balanced =
      balanced_stages(costs, 2, machine.chip_tiles * machine.tile_bytes, 8);
  EXPECT_EQ(by_bytes, (std::vector<uint32_t>{0, 1}));
  EXPECT_LT(most_of(costs, balanced, 8).first, most_of(costs, by_bytes, 8).first);
  EXPECT_LT(seconds_of(balanced), seconds_of(by_bytes));
  const std::vector<PlacementCost> considered = place_graph(g, machine, {}, 0, bound::Runs::none).considered;
  const auto stages = std::ranges::find_if(considered, [](const PlacementCost& placement) {
    return placement.placement == "2 stages of whole layers on as many chips, as a pipeline";
  });
  ASSERT_NE(stages, considered.end());
  EXPECT_EQ(stages->seconds, seconds_of(balanced));
}

TEST(Placement, TakesOneChipWhereMoreWouldBeSlower) {
  const RunCost cost = Session(layers_of(2, 32), chips(4)).cost();
  ASSERT_EQ(cost.placements.size(), 3u);
  EXPECT_EQ(cost.placements[0].placement, "1 of 4 chips");
  EXPECT_TRUE(cost.placements[0].chosen);
  for (const PlacementCost& other : cost.placements) EXPECT_GE(other.seconds, cost.seconds);
  std::set<std::string> passes;
  for (const PassRecord& pass : cost.passes) EXPECT_TRUE(passes.insert(pass.name).second) << pass.name;
}

TEST(Placement, OfWhatOverflowsAChipIsWholeLayersFirst) {
  // Four weights of 0.8 MB on chips of 4 × 639 kB.
  const Graph g = layers_of(4, 448);
  Session session(g, chips(4, 4));
  ASSERT_TRUE(session.fits());
  const RunCost cost = session.cost();
  ASSERT_EQ(cost.placements.size(), 2u);
  EXPECT_THAT(cost.placements[0].overflow, HasSubstr("bytes and has 638976; it holds"));
  EXPECT_EQ(cost.placements[1].placement, "2 stages of whole layers on as many chips");
  EXPECT_TRUE(cost.placements[1].chosen);
  expect_run_like_float64(session.graph(), session);
}

TEST(Placement, OfManyMicroBatchesIsAPipelineOfWholeLayers) {
  // Four layers whose weights do not fit one chip with their gradients.
  Graph g = layers_of(4, 384);
  const Value loss = mean_squared_error(g.value(g.outputs().at("y")), g.input("target", {8, 384}));
  g.remove_output("y");
  g.output("loss", loss);
  add_training(loss, {.micro_batches = 8});
  const RunCost cost = estimate(g, chips(4, 4));
  const auto chosen = std::ranges::find(cost.placements, true, &PlacementCost::chosen);
  ASSERT_NE(chosen, cost.placements.end());
  EXPECT_THAT(chosen->placement, HasSubstr("stages of whole layers on as many chips, as a pipeline"));
  g.balance_stages(1);
  for (const PlacementCost& considered : estimate(g, chips(4, 4)).placements)
    EXPECT_THAT(considered.placement, testing::Not(HasSubstr("stages")));
}

TEST(Placement, OfALayerThatOverflowsAChipIsSeveralAsOne) {
  const Graph g = layers_of(1, 1024);  // 4 MB
  Session session(g, chips(4, 4));
  ASSERT_TRUE(session.fits());
  const RunCost cost = session.cost();
  EXPECT_THAT(cost.placements.back().placement, HasSubstr("chips as one"));
  EXPECT_TRUE(cost.placements.back().chosen);
  EXPECT_FALSE(cost.links.empty());
  expect_run_like_float64(session.graph(), session);
}

}  // namespace
}  // namespace tessera::graph
