// What a memory budget lets be computed again in the backward pass.
#include "lower/recomputation.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/estimate.h>
#include <tessera/gradients.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "graph/loop.h"
#include "graph/transforms/recompute.h"
#include "networks.h"
#include "support/error_of.h"

namespace tessera::graph {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

Machine chips(uint32_t count) { return Machine::find("m2000").with("chips", count).with("tiles", 6); }

/// Of a step of several micro-batches, in flight if there are stages.
TrainingOptions options_of(uint32_t stages) {
  TrainingOptions options{.optimizer = Sgd{.momentum = 0.9}, .micro_batches = 4};
  if (stages > 1) options.pipeline.kind = PipelineKind::one_forward_one_backward;
  return options;
}

/// Between what a step needs that keeps all, and one that computes all calls again.
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

TEST(MemoryBudget, NeedNotBeUsed) {
  TrainingOptions options = options_of(1);
  const Graph plain = called_layers(options);
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1} << 40}) {
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
    options.memory_budget = 0;
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

  Graph g;
  const Value loss = mean(square(linear(g.input("x", {8, 8}), g.parameter("w", {8, 8}))));
  g.output("loss", loss);
  add_training(loss, {.memory_budget = 1000});
  EXPECT_THAT(message(g, chips(1)), HasSubstr("has no calls or stages that could be computed again"));
}

/// Of one micro-batch, whose calls are the graph's own, and of several.
TEST(Recomputation, OfCallsIsThatOfTheirOption) {
  for (const uint32_t micro_batches : {1U, 4U}) {
    SCOPED_TRACE(micro_batches);
    const TrainingOptions options{.optimizer = Sgd{}, .micro_batches = micro_batches};
    Graph g = called_layers(options);
    std::vector<Recomputable> all;
    for (const RecomputationCandidate& candidate : recomputation_candidates(g)) {
      EXPECT_TRUE(candidate.what.call);
      EXPECT_EQ(candidate.what.loop.has_value(), micro_batches > 1);
      all.push_back(candidate.what);
    }
    EXPECT_EQ(all.size(), kCalledLayers);
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
