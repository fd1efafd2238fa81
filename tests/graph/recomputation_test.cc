// Values that a memory budget causes to be computed again in the backward pass.
#include "lower/recomputation.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/estimate.h>
#include <tessera/gradients.h>

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "graph/loop.h"
#include "graph/transforms/recompute.h"
#include "networks.h"
#include "random_graph.h"
#include "support/error_of.h"

namespace tessera::graph {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

Machine chips(uint32_t count) { return Machine::find("m2000").with("chips", count).with("tiles", 6); }

/// A step with several micro-batches, which are in flight if there are stages.
TrainingOptions options_of(uint32_t stages) {
  TrainingOptions options{.optimizer = Sgd{.momentum = 0.9}, .micro_batches = 4};
  if (stages > 1) options.pipeline.kind = PipelineKind::one_forward_one_backward;
  return options;
}

/// The bytes in the middle between a step that keeps all values and a step that computes all calls again.
uint64_t middle_of(const TrainingOptions& options, uint32_t stages, const Machine& machine) {
  const uint64_t all = estimate(called_layers(options, stages), machine).fullest_tile_bytes,
                 least = estimate(called_layers(options, stages, true), machine).fullest_tile_bytes;
  EXPECT_LT(least, all);
  return (all + least) / 2;
}

struct Trained {
  std::vector<Arrays> results;
  Arrays state;
};
Trained trained(const Graph& graph, const Machine& machine) {
  Session session(graph, machine, {.seed = 5});
  Trained found;
  for (uint32_t step = 0; step < 2; ++step)
    found.results.push_back(session.run(narrowed(random_inputs(graph))));
  found.state = session.state();
  return found;
}

TEST(MemoryBudget, IsKeptWithTheSameBits) {
  for (const uint32_t stages : {1U, 2U})
    for (const Machine& machine : {Machine::host(2), chips(stages)}) {
      SCOPED_TRACE(fmt::format("{} stages, {}", stages, machine.name()));
      TrainingOptions options = options_of(stages);
      const Graph plain = called_layers(options, stages), all = called_layers(options, stages, true);
      const uint64_t budget = middle_of(options, stages, machine);
      options.memory_budget = budget;
      const Graph limited = called_layers(options, stages);
      const RunCost cost = estimate(limited, machine);
      EXPECT_EQ(cost.overflow, "");
      EXPECT_LE(cost.fullest_tile_bytes, budget);
      EXPECT_EQ(cost.passes.front().name, "recompute");
      EXPECT_GT(cost.seconds, estimate(plain, machine).seconds);
      EXPECT_LE(cost.seconds, estimate(all, machine).seconds);
      expect_equal(Session(limited, machine).cost(), cost);
      const Trained found = trained(limited, machine), expected = trained(plain, machine);
      EXPECT_EQ(found.results, expected.results);
      EXPECT_EQ(found.state, expected.state);
    }
}

TEST(MemoryBudget, TakesAsFewCallsAsFitInFewEstimates) {
  for (const uint32_t stages : {1U, 2U}) {
    SCOPED_TRACE(stages);
    const Machine machine = chips(stages);
    TrainingOptions options = options_of(stages);
    options.memory_budget = middle_of(options, stages, machine);
    const Graph limited = called_layers(options, stages);
    const Fitted fitted = fit_to_memory(limited, machine.model(), {}, nullptr);
    EXPECT_LE(fitted.estimates, 2 + 3U);  // ⌈log₂ 6⌉
    const std::vector<Recomputable>& chosen = fitted.recomputation.chosen;
    ASSERT_FALSE(chosen.empty());
    EXPECT_LT(chosen.size(), kCalledLayers);
    Graph fewer = limited;
    fewer.set_memory_budget({});
    recompute(fewer, std::span(chosen).first(chosen.size() - 1));
    EXPECT_GT(estimate(fewer, machine).fullest_tile_bytes, *options.memory_budget);
    // The first ones, whose results are kept longest.
    const std::vector<RecomputationCandidate> candidates = recomputation_candidates(limited);
    for (size_t i = 0; i < chosen.size(); ++i) EXPECT_EQ(chosen[i], candidates[i].what);
  }
}

std::vector<Recomputable> all_of(const std::vector<RecomputationCandidate>& candidates) {
  std::vector<Recomputable> all;
  for (const RecomputationCandidate& candidate : candidates) all.push_back(candidate.what);
  return all;
}

/// Chooses for a budget between the most and the least that a graph needs, if recomputation saves anything.
/// Returns whether it does.
bool keeps_budget(const Graph& graph, const std::vector<Recomputable>& all, const Machine& machine) {
  Graph least = graph;
  recompute(least, all);
  uint64_t most_bytes = 0, least_bytes = 0;
  try {
    most_bytes = estimate(graph, machine).fullest_tile_bytes;
    least_bytes = estimate(least, machine).fullest_tile_bytes;
  } catch (const Error&) {
    return false;  // the machine has no such operation, or too little memory for it
  }
  if (most_bytes < least_bytes + 16) return false;
  const uint64_t budget = (most_bytes + least_bytes) / 2;
  Graph limited = graph;
  limited.set_memory_budget(budget);
  const Fitted fitted = fit_to_memory(limited, machine.model(), {}, nullptr);
  EXPECT_LE(estimate(fitted.graph, machine).fullest_tile_bytes, budget);
  const std::span<const Recomputable> chosen = fitted.recomputation.chosen;
  EXPECT_FALSE(chosen.empty());
  if (chosen.empty()) return true;
  Graph fewer = graph;
  recompute(fewer, chosen.first(chosen.size() - 1));
  EXPECT_GT(estimate(fewer, machine).fullest_tile_bytes, budget);
  return true;
}

TEST(MemoryBudget, IsKeptByRandomGraphs) {
  uint32_t kept = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Built built;
    build(random_recipe(seed, {.operations = 6 + static_cast<uint32_t>(seed % 20), .most_replicas = 2}),
          built);
    const std::vector<Recomputable> all = all_of(recomputation_candidates(built.graph));
    if (all.size() < 2) continue;
    for (const Machine& machine : {Machine::host(1), chips(2)})
      kept += keeps_budget(built.graph, all, machine) ? 1 : 0;
  }
  EXPECT_GT(kept, 0U);
}

TEST(MemoryBudget, NeedNotBeUsed) {
  TrainingOptions options = options_of(1);
  const Graph plain = called_layers(options);
  for (const uint64_t bytes : {kMachineMemory, uint64_t{1} << 40}) {
    options.memory_budget = bytes;
    const Fitted fitted = fit_to_memory(called_layers(options), chips(1).model(), {}, nullptr);
    EXPECT_EQ(fitted.estimates, 1U);
    EXPECT_EQ(to_string(fitted.graph), to_string(plain));
  }
}

TEST(MemoryBudget, MayBeWhatTheMachineHas) {
  for (const uint32_t stages : {1U, 2U}) {
    SCOPED_TRACE(stages);
    TrainingOptions options = options_of(stages);
    const Machine small = chips(stages).with("tile_bytes", 100'000);
    const Machine machine = small.with("tile_bytes", static_cast<double>(middle_of(options, stages, small)));
    EXPECT_NE(estimate(called_layers(options, stages), machine).overflow, "");
    options.memory_budget = kMachineMemory;
    const Graph limited = called_layers(options, stages);
    EXPECT_EQ(estimate(limited, machine).overflow, "");
    EXPECT_TRUE(Session(limited, machine).fits());
    const std::string overflow = estimate(limited, chips(stages).with("tile_bytes", 20'000)).overflow;
    EXPECT_THAT(overflow, HasSubstr("has 20000; it holds"));
    EXPECT_THAT(overflow, HasSubstr("streaming memory can hold (offload)"));
    EXPECT_THAT(overflow, Not(HasSubstr("(recompute)")));
  }
}

TEST(MemoryBudget, SaysWhatLacksAndWhatHelps) {
  const auto message = [](const Graph& graph, const Machine& machine) {
    const std::string of_estimate = test::error_of<UsageError>([&] { estimate(graph, machine); });
    EXPECT_EQ(test::error_of<UsageError>([&] { Session(graph, machine); }), of_estimate);
    return of_estimate;
  };
  TrainingOptions options = options_of(2);
  options.memory_budget = 1000;
  const Graph limited = called_layers(options, 2);
  const std::string on_chips = message(limited, chips(2));
  EXPECT_THAT(on_chips, HasSubstr(" bytes more than its memory budget of 1000 bytes, if "));
  EXPECT_THAT(on_chips,
              HasSubstr(" of its 7 calls and stages are computed again, which comes closest; chip "));
  EXPECT_THAT(on_chips, AnyOf(HasSubstr("; chip 0 (stage 0), "), HasSubstr("; chip 1 (stage 1), ")));
  EXPECT_THAT(on_chips, HasSubstr("which replicas can divide (shard)"));
  EXPECT_THAT(on_chips, Not(HasSubstr("(recompute)")));
  EXPECT_THAT(message(limited, Machine::host(2)), HasSubstr("main memory needs "));
  options.memory_budget = 1'000'000;
  EXPECT_THAT(
      message(called_layers(options, 2), chips(2).with("tile_bytes", 20'000)),
      HasSubstr("more than the 20000 bytes that the machine has, and its memory budget is 1000000 bytes"));

  Graph g;
  const Value loss = mean(square(linear(g.input("x", {8, 8}), g.parameter("w", {8, 8}))));
  g.output("loss", loss);
  add_training(loss, {.memory_budget = 1000});
  EXPECT_THAT(message(g, chips(1)), HasSubstr("has no calls or stages that could be computed again"));
}

/// Steps of one micro-batch, whose calls are the graph's own, and of several.
TEST(Recomputation, OfCallsIsThatOfTheirOption) {
  for (const uint32_t micro_batches : {1U, 4U}) {
    SCOPED_TRACE(micro_batches);
    const TrainingOptions options{.optimizer = Sgd{}, .micro_batches = micro_batches};
    Graph g = called_layers(options);
    const std::vector<Recomputable> all = all_of(recomputation_candidates(g));
    EXPECT_EQ(all.size(), kCalledLayers);
    for (const Recomputable& each : all) {
      EXPECT_TRUE(each.call);
      EXPECT_EQ(each.loop.has_value(), micro_batches > 1);
    }
    recompute(g, all);
    EXPECT_TRUE(recomputation_candidates(g).empty());
    for (const Machine& machine : {Machine::host(2), chips(1)}) {
      const RunCost cost = estimate(g, machine),
                    expected = estimate(called_layers(options, 1, true), machine);
      EXPECT_EQ(cost.seconds, expected.seconds);
      EXPECT_EQ(cost.bytes, expected.bytes);
    }
  }
}

/// A call whose gradient keeps a few numbers; the gradient of a second one would keep a matrix.
TEST(Recomputation, IsForWhatSavesMemory) {
  for (const bool is_kept : {false, true}) {
    SCOPED_TRACE(is_kept);
    auto function = std::make_shared<Graph>();
    function->output("y", exp(tanh(sum(function->input("x", {32, 8}), {0}))));
    Graph g;
    const Value x = g.parameter("w", {32, 8}) * 2;
    Value loss = sum(g.call(function, {x})[0]);
    if (is_kept) loss = loss + sum(square(x));
    g.output("loss", loss);
    add_training(loss);
    EXPECT_EQ(recomputation_candidates(g).size(), is_kept ? 1U : 0U);
  }
}

/// A result is also an output of the graph; and a call is not computed a third time.
TEST(Recomputation, OfACallWhoseResultIsTakenElsewhereIsOneCall) {
  auto function = std::make_shared<Graph>();
  const Value in = function->input("x", {8, 8}), weight = function->input("w", {8, 8});
  function->output("y", tanh(linear(gelu(linear(in, weight)), weight)));
  Graph g;
  const Value w = g.parameter("w", {8, 8}, Initial::normal(0.5));
  const Value y = g.call(function, {g.input("x", {8, 8}), w})[0];
  g.output("y", y);
  g.output("dw", *gradients(mean(square(y)), {w})[0]);
  Graph again = g;
  const std::vector<Recomputable> all = all_of(recomputation_candidates(again));
  ASSERT_EQ(all.size(), 1U);
  recompute(again, all);
  verify(again);
  EXPECT_EQ(again.nodes().size(), g.nodes().size() + 1);
  EXPECT_TRUE(recomputation_candidates(again).empty());
  recompute(again, all);
  EXPECT_EQ(again.nodes().size(), g.nodes().size() + 1);
  expect_like_float64(again);
  WideArrays state = {{"w", random_values(w.type(), -1, 1, 5, 9, 0)}}, same = state;
  const WideArrays inputs = random_inputs(g);
  EXPECT_EQ(evaluate(again, inputs, state), evaluate(g, inputs, same));
}

/// The first stage of two keeps values of two micro-batches.
TEST(Recomputation, OfStagesIsThatOfTheirPipeline) {
  Graph g = called_layers(options_of(2), 2);
  const std::vector<RecomputationCandidate> candidates = recomputation_candidates(g);
  ASSERT_EQ(candidates.size(), kCalledLayers + 1U);
  EXPECT_EQ(candidates.front().bytes, 2 * candidates[kCalledLayers - 1].bytes);
  const RecomputationCandidate& stage = candidates.back();
  EXPECT_FALSE(stage.what.call);
  EXPECT_EQ(stage.what.stage, 0U);
  EXPECT_GE(stage.bytes, kCalledLayers / 2 * candidates.front().bytes);
  const uint32_t loop = stage.what.loop.value();
  recompute(g, std::span(&stage.what, 1));
  EXPECT_EQ(loop_form(g.nodes().at(loop)).pipeline.recomputed, std::set<uint32_t>{0});
  EXPECT_EQ(recomputation_candidates(g).size(), kCalledLayers);
}

}  // namespace
}  // namespace tessera::graph
