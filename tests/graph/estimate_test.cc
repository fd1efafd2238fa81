// The cost of a graph without a session of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/estimate.h>
#include <tessera/gradients.h>
#include <tessera/pass_record.h>

#include <algorithm>

#include "graph/transforms/transforms.h"
#include "lower/placement.h"
#include "networks.h"
#include "support/error_of.h"
#include "support/number_of.h"

namespace tessera::graph {
namespace {

using ::testing::HasSubstr;

Machine chips(uint32_t count) { return Machine::find("m2000").with("chips", count).with("tiles", 8); }
Machine few_tiles() { return Machine::find("bow").with("tiles", 16); }

/// Layers of one function; with `stages`, the same number on each stage.
Graph calls(uint32_t width, uint32_t layers, uint32_t stages = 0) {
  auto f = std::make_shared<Graph>();
  const Value x = f->input("x", {6, width}), w = f->input("w", {width, width}), b = f->input("b", {width});
  f->output("y", x + tanh(linear(x, w, b)));
  Graph g;
  Value h = g.input("x", {6, width});
  for (uint32_t i = 0; i < layers; ++i) {
    const Call how = {.stage = stages > 0 ? std::optional(i * stages / layers) : std::nullopt};
    h = g.call(f,
               {h, g.parameter("w" + std::to_string(i), {width, width}, Initial::normal(0.1)),
                g.parameter("b" + std::to_string(i), {width})},
               how)[0];
  }
  g.output("loss", mean(square(h)));
  return g;
}

TEST(Estimates, AreTheCostOfASessionOnAnyMachine) {
  const std::vector<TrainingOptions> options = {
      {.optimizer = Sgd{.momentum = 0.9}, .micro_batches = 3},
      {.optimizer = Adam{}, .clip_norm = 1.0},
      {.optimizer = Adam{}, .micro_batches = 2, .replicas = 2},
  };
  test::EveryNth some(5);
  for (const TrainingOptions& each : options)
    for (const Layers layers : {Layers::dense, Layers::sparse, Layers::dynamic}) {
      Classifier network(layers, each.micro_batches == 1);
      add_training(network.loss, each);
      std::vector<Machine> machines = {chips(2), chips(4)};
      if (each.replicas == 1) machines.insert(machines.end(), {Machine::host(2), few_tiles()});
      for (const Machine& machine : machines) {
        if (!some.takes()) continue;
        SCOPED_TRACE(machine.name());
        expect_equal(estimate(network.graph, machine), Session(network.graph, machine).cost());
      }
    }
}

TEST(Estimates, FollowCallsAndStages) {
  Graph g = calls(24, 3);
  for (const Machine& machine : {Machine::host(2), few_tiles(), chips(4)})
    expect_equal(estimate(g, machine), Session(g, machine).cost());
  add_training(g.value(g.outputs().at("loss")), {.optimizer = Sgd{}, .micro_batches = 5});
  for (const Machine& machine : {few_tiles(), chips(2)})
    expect_equal(estimate(g, machine), Session(g, machine).cost());
  expect_equal(estimate(g, chips(4), {.on_chips = 2}), Session(g, chips(4), {.on_chips = 2}).cost());
}

TEST(Estimates, OfKindsAreThoseOfOperations) {
  for (const Graph& g : {calls(24, 3), calls(24, 1)})
    for (const Machine& machine : {Machine::host(2), Machine::find("bow")}) {
      const RunCost cost = estimate(g, machine);
      double all = 0, sum = 0;
      for (const OperationCost& operation : cost.operations) all += operation.seconds;
      std::map<std::string, double> kinds;
      for (const auto& [kind, seconds] : seconds_by_kind(cost)) {
        kinds[kind] = seconds;
        sum += seconds;
      }
      EXPECT_NEAR(sum, all, 1e-6 * all);
      EXPECT_GT(kinds["products"], 0);
      EXPECT_GT(kinds["elementwise operations"], 0);
      EXPECT_TRUE(kinds.contains("conversions of layouts"));
      EXPECT_FALSE(kinds.contains("calls"));
    }
}

/// Weights and results are passed by address, so that a call takes no memory or copies beside its body's.
TEST(Estimates, OfCallsOnTilesHaveNoCopies) {
  constexpr uint32_t kWidth = 24, kLayers = 3;
  const Graph g = calls(kWidth, kLayers);
  const Machine machine = Machine::find("bow");
  const std::string program = Session(g, machine).program();
  EXPECT_THAT(program, HasSubstr("call function0("));
  EXPECT_THAT(program, testing::Not(HasSubstr("pass to function0")));
  EXPECT_THAT(program, testing::Not(HasSubstr("return from function0")));
  const RunCost few = estimate(g, machine), many = estimate(calls(kWidth, 2 * kLayers), machine);
  const uint64_t parameters = 4 * kLayers * (kWidth * kWidth + kWidth);
  EXPECT_EQ(few.bytes.at("parameter"), parameters);
  EXPECT_EQ(many.bytes.at("parameter"), 2 * parameters);
  EXPECT_LE(many.bytes.at("activation"), few.bytes.at("activation"));
}

/// In pieces of at least 32 elements, as a row or as a column: a tile takes a transfer for each.
TEST(Estimates, OfBiasesOnTilesAreOfFewPieces) {
  constexpr uint32_t kFeatures = 256;
  const machine::Machine machine = Machine::find("bow").model();
  Graph g;
  const Value x = g.input("x", {32, kFeatures}, Type::f16);
  g.output("y", linear(x, g.parameter("w", {kFeatures, kFeatures}, {}, Type::f16),
                       g.parameter("bias", {kFeatures}, {}, Type::f16)));
  transform(g, session_transforms(), machine);
  const Placed placed = place_graph(g, machine, {}, 1, bound::Runs::resumed);
  uint32_t vectors = 0;
  for (const program::Variable& variable : placed.program->executable().program->variables()) {
    if (variable.rows * variable.cols != kFeatures) continue;
    ++vectors;
    EXPECT_LE(variable.mapping.size(), kFeatures / 32) << variable.name;
  }
  EXPECT_GE(vectors, 1U);
}

/// A value passed from call to call lies as one returns it and the other takes it.
TEST(Estimates, OfMoreCallsOnTilesHaveNoFurtherConversions) {
  for (const char* optimizer : {"none", "sgd", "lamb"}) {
    SCOPED_TRACE(optimizer);
    const auto cost = [&](uint32_t layers) {
      Graph g = calls(24, layers);
      if (optimizer != std::string("none"))
        add_training(g.value(g.outputs().at("loss")),
                     {.optimizer = optimizer == std::string("sgd") ? Optimizer(Sgd{}) : Optimizer(Lamb{})});
      return estimate(g, Machine::find("bow"));
    };
    EXPECT_EQ(cost(12).conversions.size(), cost(8).conversions.size());
  }
}

void expect_measured(const Graph& g, const Machine& machine) {
  Session session(g, machine);
  ASSERT_TRUE(session.fits());
  std::map<std::string, std::vector<float>> arrays;
  std::vector<Tensor> tensors;
  for (const ArrayType& each : session.arrays()) {
    arrays[each.name].assign(each.type.elements(), 0.5F);
    tensors.push_back({each.name, arrays[each.name].data(), {}});
  }
  EXPECT_EQ(session.measure(tensors).cycles, estimate(g, machine).cycles);
}

/// A pass of a loop is counted once; a run that is measured walks them all.
TEST(Estimates, OfMicroBatchesAreWhatRunsTake) {
  Graph g = calls(24, 2);
  add_training(g.value(g.outputs().at("loss")), {.optimizer = Sgd{}, .micro_batches = 7});
  for (const Machine& machine : {few_tiles(), chips(2)}) expect_measured(g, machine);
}

/// The number of the step and the keys of random numbers differ from pass to pass, but cost the same.
TEST(Estimates, OfMicroBatchesWithDropoutAndAdamAreCountedAhead) {
  for (const uint32_t micro_batches : {2U, 7U, 1000U}) {
    Graph g;
    const Value x = g.input("x", {6, 24}), step = g.input("step", {}, Type::u32);
    const Value w = g.parameter("w", {24, 24}, Initial::normal(0.1)), b = g.parameter("b", {24});
    const Value loss = mean(square(dropout(tanh(linear(x, w, b)), 0.25, step, 7)));
    g.output("loss", loss);
    add_training(loss, {.optimizer = Adam{}, .micro_batches = micro_batches});
    for (const Machine& machine : {few_tiles(), chips(2)}) {
      SCOPED_TRACE(machine.name());
      const RunCost cost = Session(g, machine).cost();
      const auto control = std::ranges::find(cost.passes, "control", &PassRecord::name);
      ASSERT_NE(control, cost.passes.end());
      EXPECT_EQ(control->did, "cycles do not depend on integers");
      expect_equal(estimate(g, machine), cost);
      if (micro_batches < 1000) expect_measured(g, machine);
    }
  }
}

TEST(Estimates, OfNamedStagesAreWhatRunsTake) {
  for (const uint32_t micro_batches : {1U, 5U}) {
    Graph g = calls(24, 8, 4);
    expect_measured(g, chips(4));
    add_training(g.value(g.outputs().at("loss")), {.optimizer = Adam{}, .micro_batches = micro_batches});
    expect_measured(g, chips(4));
    expect_equal(estimate(g, chips(4)), Session(g, chips(4)).cost());
  }
}

TEST(Estimates, OfSharedParametersAreThoseOfTheSharingSession) {
  Classifier training(Layers::sparse), evaluation(Layers::sparse);
  add_training(training.loss, {.optimizer = Sgd{.momentum = 0.9}});
  for (const Machine& machine : {Machine::host(2), few_tiles()}) {
    const Session owner(training.graph, machine);
    expect_equal(estimate(evaluation.graph, machine, {.owner = &training.graph}),
                 Session(evaluation.graph, owner).cost());
  }
}

/// Transfers from and to hosts are a separate phase; several hosts have a part each.
TEST(Estimates, HaveTransfersFromAndToHostsIfAskedFor) {
  Classifier network(Layers::dense);
  add_training(network.loss, {.optimizer = Sgd{}, .replicas = 2});
  constexpr uint64_t kIn = 2 * 20 * (48 + 1) * 4 + 4;  // x and labels of two replicas, and lr
  constexpr uint64_t kOut = 4;                         // the loss
  for (const double hosts : {1.0, 2.0}) {
    const Machine machine = chips(2).with("hosts", hosts);
    const RunCost without = estimate(network.graph, machine);
    const RunCost with = estimate(network.graph, machine, {.host_io = true});
    EXPECT_FALSE(without.host_io);
    EXPECT_FALSE(without.cycles.contains("host"));
    ASSERT_TRUE(with.host_io);
    EXPECT_EQ(with.host_io->bytes_in, kIn);
    EXPECT_EQ(with.host_io->bytes_out, kOut);
    EXPECT_NEAR(with.host_io->seconds, 2 * 10e-6 + static_cast<double>(kIn + kOut) / (hosts * 12.5e9), 1e-12);
    EXPECT_NEAR(with.seconds, without.seconds + with.host_io->seconds, 1e-12);
    EXPECT_NEAR(with.seconds_without_host_io(), without.seconds, 1e-12);
    std::map<std::string, double> phases = with.cycles;
    EXPECT_NEAR(phases.extract("host").mapped(), with.host_io->seconds * machine.clock_hz(), 1e-3);
    EXPECT_EQ(phases, without.cycles);
    expect_equal(Session(network.graph, machine, {.host_io = true}).cost(), with);
  }
}

TEST(Estimates, OfTransfersAreWhatRunsTake) {
  const Classifier network(Layers::dense), evaluation(Layers::dense);
  const Machine machine = Machine::find("gc200").with("tiles", 16);
  Session session(network.graph, machine, {.host_io = true});
  Session sharing(evaluation.graph, session);
  for (Session* each : {&session, &sharing}) {
    std::map<std::string, std::vector<float>> arrays;
    std::vector<Tensor> tensors;
    for (const ArrayType& array : each->arrays()) {
      arrays[array.name].resize(array.type.elements());
      tensors.push_back({array.name, arrays[array.name].data(), {}});
    }
    each->run(tensors);
    const RunCost cost = each->cost();
    ASSERT_TRUE(cost.host_io);
    EXPECT_NEAR(each->last_seconds(), cost.seconds, 1e-12);
    EXPECT_NEAR(each->measure(tensors).host_io->seconds, cost.host_io->seconds, 1e-12);
  }
}

/// Products and whole rows begin on the first tiles, which therefore have less of everything else.
TEST(Estimates, HaveVectorsOnTheLastTiles) {
  constexpr uint32_t kTiles = 64, kElements = 1024, kOfTile = 32;
  Graph g;
  const Value b = g.parameter("b", {kElements});
  const Value loss = mean(square(g.input("x", {kElements}) - b));
  g.output("loss", loss);
  add_training(loss, {.optimizer = Sgd{.momentum = 0.9}});
  const RunCost cost = estimate(g, Machine::find("gc200").with("tiles", kTiles));
  ASSERT_EQ(cost.tiles.size(), kTiles);
  for (uint32_t tile = 0; tile < kTiles; ++tile) {
    const auto found = cost.tiles[tile].find("optimizer");
    const uint64_t bytes = found == cost.tiles[tile].end() ? 0 : found->second;
    EXPECT_EQ(bytes, tile < kTiles - kElements / kOfTile ? 0 : kOfTile * sizeof(float)) << tile;
  }
}

TEST(Estimates, OfTransfersNeedALink) {
  Graph g;
  g.output("y", relu(g.input("x", {8, 8})));
  const Machine gc200 = Machine::find("gc200").with("tiles", 16);
  const Machine without = gc200.with("host_link_gb_per_second", 0);
  EXPECT_THAT(test::error_of<UsageError>([&] { estimate(g, without, {.host_io = true}); }),
              HasSubstr("gc200 has no link to a host over which inputs and outputs could go: set its "
                        "'host_link_gb_per_second'"));
  EXPECT_FALSE(estimate(g, Machine::host(2), {.host_io = true}).host_io);
  EXPECT_EQ(estimate(g, gc200, {.host_io = true}).host_io->bytes_in, 8 * 8 * 4U);
}

/// On machines whose tiles have enough of it: 4 × 4.3 GB of parameters in each of 4 replicas, and the same of
/// momentum.
TEST(Estimates, TakeNoMemoryForParameters) {
  Graph g;
  Value h = g.input("x", {4, 32768}, Type::f32);
  for (const char* name : {"a", "b", "c", "d"})
    h = linear(h, g.parameter(name, {32768, 32768}, Initial::normal(0.01)));
  g.output("loss", mean(square(h)));
  const uint64_t parameters = uint64_t{4} * 32768 * 32768 * 4;
  const Machine tiles = chips(4).with("tile_bytes", double{1u << 31});
  const RunCost forward = estimate(g, tiles);
  EXPECT_EQ(forward.overflow, "");
  EXPECT_GE(forward.total_bytes, parameters);
  EXPECT_GE(estimate(g, Machine::host(2)).total_bytes, parameters);
  add_training(g.value(g.outputs().at("loss")), {.optimizer = Sgd{.momentum = 0.9}, .replicas = 4});
  EXPECT_GE(estimate(g, tiles).total_bytes, 2 * parameters);
}

TEST(Estimates, RefuseWhatSessionsRefuse) {
  Graph g;
  g.output("y", relu(g.input("x", {8, 8})));
  EXPECT_THAT(test::error_of<UsageError>([&] { estimate(g, chips(2), {.on_chips = 4}); }),
              HasSubstr("4 chips are to work as one; m2000 has 2"));
  const std::vector<Tensor> unknown = {{"z", nullptr, {}}};
  EXPECT_THAT(test::error_of<UsageError>([&] { estimate(g, chips(2), {.inputs = unknown}); }),
              HasSubstr("'z' is neither an input nor an output of the graph"));
}

}  // namespace
}  // namespace tessera::graph
