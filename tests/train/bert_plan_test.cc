// The search for a way to divide a step of BERT among chips.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/pretraining_plan.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "graph/loop.h"
#include "support/error_of.h"
#include "support/number_of.h"
#include "train/bert/settings.h"

namespace tessera {
namespace {

using test::error_of;
using test::says;

const TextSplit& text_to_plan() {
  static const TextSplit split =
      split_text(synthetic_text({.vocabulary = 80, .documents = 60, .seed = 3}), 0.2, 1);
  return split;
}

PretrainingSettings tiny(uint32_t packs) {
  PretrainingSettings s;
  s.config = graph::BertConfig::named("tiny");
  s.config.hidden_dropout_prob = s.config.attention_probs_dropout_prob = 0;
  s.phases = {{.length = 16, .packs = packs, .steps = 1}};
  return s;
}

Machine two_chips(uint32_t tiles = 16) {
  return Machine::find("m2000").with("chips", 2).with("tiles", tiles).with("tile_bytes", 8'000'000);
}

/// Extrapolation from one and two layers is exact for two, if no pipeline and no place of state changes the
/// cost.
TEST(BertPlan, ChoosesTheFastestThatFits) {
  size_t networks = 0, most = 0;
  const PretrainingPlan plan =
      plan_pretraining(tiny(2), text_to_plan(), two_chips(64),
                       {.estimates = 4, .progress = [&](size_t done, size_t of, const std::string& next) {
                          EXPECT_LE(done, of);
                          EXPECT_FALSE(next.empty());
                          ++networks;
                          most = of;
                          return true;
                        }});
  ASSERT_TRUE(plan.chosen);
  EXPECT_EQ(plan.overflow, "");
  EXPECT_LE(networks, most);
  ASSERT_LE(plan.estimated.size(), 4U);
  const PretrainingDivision& chosen = plan.estimated[*plan.chosen];
  EXPECT_TRUE(chosen.estimated->fits);
  EXPECT_LE(chosen.estimated->fullest_tile_bytes, plan.tile_bytes);
  for (const PretrainingDivision& division : plan.estimated) {
    const PretrainingSettings& s = division.settings;
    ASSERT_TRUE(division.estimated && division.extrapolated);
    EXPECT_TRUE(!division.estimated->fits || division.estimated->seconds >= chosen.estimated->seconds);
    EXPECT_EQ(2 % (s.replicas * s.stages), 0U);
    const double ratio = division.extrapolated->seconds / division.estimated->seconds;
    EXPECT_GT(ratio, 0.5) << s.stages << " stages";
    EXPECT_LT(ratio, 2) << s.stages << " stages";
    if (s.stages == 1 && !s.shard_from && !s.offload_from) {
      EXPECT_NEAR(ratio, 1, 1e-9);
    }
  }
  const BertTrainer trainer = BertTrainer::for_estimates(chosen.settings, text_to_plan(), two_chips(64));
  EXPECT_EQ(trainer.step_cost().seconds, chosen.estimated->seconds);
  EXPECT_EQ(trainer.step_cost().overflow, "");
}

/// The frontier begins with the fastest, and each of the others takes less memory than those before it.
TEST(BertPlan, HasAFrontierOfMemoryAndTime) {
  const PretrainingPlan plan =
      plan_pretraining(tiny(2), text_to_plan(), two_chips(), {.estimates = 0, .time_limit = 1e6});
  ASSERT_FALSE(plan.frontier.empty());
  EXPECT_FALSE(plan.out_of_time);
  EXPECT_FALSE(plan.chosen);
  EXPECT_TRUE(plan.estimated.empty());
  EXPECT_GE(plan.considered, plan.frontier.size());
  EXPECT_GT(plan.small_estimates, 2U);
  for (size_t i = 1; i < plan.frontier.size(); ++i) {
    const PretrainingCost &before = *plan.frontier[i - 1].extrapolated,
                          &cost = *plan.frontier[i].extrapolated;
    EXPECT_GT(cost.seconds, before.seconds);
    EXPECT_LT(cost.fullest_tile_bytes, before.fullest_tile_bytes);
  }
}

TEST(BertPlan, EstimatesTheGivenDivisionTooAndBeatsOrEqualsIt) {
  PretrainingSettings settings = tiny(2);
  settings.stages = 2;
  settings.stage_layers = {1, 1};
  settings.micro_batches = 2;
  settings.recompute = true;
  const PretrainingPlan plan =
      plan_pretraining(settings, text_to_plan(), two_chips(), {.estimates = 1, .compare = true});
  ASSERT_GE(plan.estimated.size(), 1U);
  const PretrainingDivision& given = plan.estimated[0];
  EXPECT_EQ(given.settings.stage_layers, std::vector<uint32_t>({1, 1}));
  EXPECT_EQ(given.settings.pipeline, graph::PipelineKind::sequential);
  ASSERT_TRUE(given.extrapolated);
  ASSERT_TRUE(plan.chosen);
  EXPECT_LE(plan.estimated[*plan.chosen].estimated->seconds, given.estimated->seconds);
}

/// One layer has one stage, so two chips are two replicas.
TEST(BertPlan, ChoosesTheBestOfAll) {
  const uint32_t packs = test::is_full() ? 4 : 2;
  PretrainingSettings settings = tiny(packs);
  settings.config.num_hidden_layers = 1;
  const PretrainingPlan plan =
      plan_pretraining(settings, text_to_plan(), two_chips(), {.estimates = 100, .margin = 1});
  settings.replicas = 2;
  double best = std::numeric_limits<double>::infinity();
  uint64_t count = 0;
  for (uint32_t micro_batches = 1; micro_batches <= packs / settings.replicas; ++micro_batches)
    for (const bool recompute : {false, true})
      for (const bool shard : {false, true})
        for (const bool offload : {false, true}) {
          settings.micro_batches = micro_batches;
          settings.recompute = recompute;
          settings.shard_from = shard ? std::optional<uint64_t>(8192) : std::nullopt;
          settings.offload_from = offload ? std::optional<uint64_t>(8192) : std::nullopt;
          const BertTrainer trainer = BertTrainer::for_estimates(settings, text_to_plan(), two_chips());
          ASSERT_EQ(trainer.step_cost().overflow, "");
          best = std::min(best, trainer.step_cost().seconds);
          ++count;
        }
  EXPECT_EQ(plan.considered, count);
  ASSERT_TRUE(plan.chosen);
  EXPECT_EQ(plan.estimated[*plan.chosen].estimated->seconds, best);
}

TEST(BertPlan, RanksDivisionsAsTheirEstimatesDo) {
  if (!test::is_full()) GTEST_SKIP() << "many divisions are estimated in ./test --full";
  const PretrainingPlan plan =
      plan_pretraining(tiny(4), text_to_plan(), two_chips(), {.estimates = 16, .margin = 10});
  size_t compared = 0;
  for (const PretrainingDivision& a : plan.estimated)
    for (const PretrainingDivision& b : plan.estimated)
      if (a.extrapolated && b.extrapolated && 1.25 * a.extrapolated->seconds < b.extrapolated->seconds) {
        EXPECT_LT(a.estimated->seconds, b.estimated->seconds);
        ++compared;
      }
  EXPECT_GT(compared, 0U);
}

/// Replicas would have five packs to divide, so each chip has a stage, which waits for others often.
TEST(BertPlan, TriesTheFastestPipelineWithGradientsOfWeightsInPassesOfTheirOwn) {
  PretrainingSettings settings = tiny(5);
  settings.config.num_hidden_layers = 4;
  const Machine chips = two_chips().with("chips", 4);
  const PretrainingPlan plan = plan_pretraining(settings, text_to_plan(), chips, {.estimates = 1});
  ASSERT_EQ(plan.estimated.size(), 2U);
  const PretrainingDivision &whole = plan.estimated[0], &split = plan.estimated[1];
  EXPECT_EQ(whole.settings.pipeline, graph::PipelineKind::one_forward_one_backward);
  EXPECT_EQ(split.settings.pipeline, graph::PipelineKind::zero_bubble);
  EXPECT_EQ(split.settings.stages, 4U);
  EXPECT_EQ(split.settings.micro_batches, 5U);
  EXPECT_EQ(split.settings.stage_layers, whole.settings.stage_layers);
  EXPECT_FALSE(split.extrapolated);
  EXPECT_LT(split.estimated->seconds, whole.estimated->seconds);
  EXPECT_EQ(plan.chosen, 1U);
  const BertTrainer trainer = BertTrainer::for_estimates(split.settings, text_to_plan(), chips);
  EXPECT_EQ(trainer.step_cost().seconds, split.estimated->seconds);
}

bool saves_more_than_state(const PretrainingDivision& division) {
  const PretrainingSettings& s = division.settings;
  return s.shard_weights_from || s.offload_weights_from || s.offload_gradients_from ||
         s.offload_activations_from;
}

/// Parameters, their gradients and the optimizer's state take more memory than smaller tiles have.
TEST(BertPlan, SavesMoreMemoryWhereItLacks) {
  PretrainingSettings settings = tiny(2);
  settings.config.num_hidden_layers = 8;
  const auto plan_on = [&](double bytes) {
    return plan_pretraining(settings, text_to_plan(), two_chips().with("tile_bytes", bytes),
                            {.estimates = 0});
  };
  const PretrainingPlan large = plan_on(8'000'000), small = plan_on(300'000);
  EXPECT_TRUE(std::ranges::none_of(large.frontier, saves_more_than_state));
  EXPECT_TRUE(std::ranges::any_of(small.frontier, saves_more_than_state));
  for (const PretrainingDivision& division : small.frontier) {
    const PretrainingSettings& s = division.settings;
    EXPECT_TRUE(!s.offload_activations_from || s.pipeline != graph::PipelineKind::sequential);
    EXPECT_TRUE(!s.offload_gradients_from || s.micro_batches > 1);
    EXPECT_TRUE(!s.shard_weights_from || s.replicas > 1);
    const PretrainingCost& cost = *division.extrapolated;
    EXPECT_EQ(cost.fits, cost.fullest_tile_bytes <= 300'000);
    EXPECT_EQ(cost.lacking_tile_bytes, cost.fits ? 0 : cost.fullest_tile_bytes - 300'000);
    if (s.offload_from || s.offload_weights_from || s.offload_gradients_from) {
      EXPECT_GT(cost.streaming_bytes, 0U);
    }
  }
}

/// The effect of parameters and gradients that lie elsewhere is measured separately, and added.
TEST(BertPlan, ExtrapolatesWhatTheGivenDivisionSaves) {
  PretrainingSettings settings = tiny(4);
  settings.replicas = settings.micro_batches = 2;
  settings.shard_weights_from = settings.offload_gradients_from = 8192;
  settings.offload_activations_from = 8192;  // a sequential pipeline has none in flight
  EXPECT_TRUE(
      says(error_of<UsageError>([&] { BertTrainer::for_estimates(settings, text_to_plan(), two_chips()); }),
           "a sequential pipeline has none in flight"));
  const PretrainingPlan plan =
      plan_pretraining(settings, text_to_plan(), two_chips(), {.estimates = 1, .compare = true});
  const PretrainingDivision& given = plan.estimated[0];
  EXPECT_FALSE(given.settings.offload_activations_from);
  ASSERT_TRUE(given.extrapolated);
  EXPECT_GT(given.extrapolated->streaming_bytes, 0U);
  const double time = given.extrapolated->seconds / given.estimated->seconds,
               bytes = static_cast<double>(given.extrapolated->fullest_tile_bytes) /
                       static_cast<double>(given.estimated->fullest_tile_bytes);
  EXPECT_GT(time, 0.5);
  EXPECT_LT(time, 2);
  EXPECT_GT(bytes, 0.5);
  EXPECT_LT(bytes, 2);
  ASSERT_TRUE(plan.chosen);
  EXPECT_LE(plan.estimated[*plan.chosen].estimated->seconds, given.estimated->seconds);
}

TEST(BertPlan, EndsWithWhatItHasWhenStopped) {
  PretrainingSettings settings = tiny(2);
  settings.replicas = 2;
  for (const size_t most : {size_t{0}, size_t{1}, size_t{2}}) {
    size_t calls = 0;
    const PretrainingPlan plan = plan_pretraining(
        settings, text_to_plan(), two_chips(),
        {.compare = true, .progress = [&](size_t, size_t, const std::string&) { return calls++ < most; }});
    EXPECT_TRUE(plan.stopped);
    EXPECT_EQ(calls, most + 1);
    EXPECT_EQ(plan.estimated.size(), most == 0 ? 0U : 1U);
    EXPECT_EQ(plan.chosen.has_value(), most > 0);
    EXPECT_EQ(plan.frontier.empty(), most < 2);
  }
}

/// One division is extrapolated, and one estimated, beside the given one.
TEST(BertPlan, EndsWithWhatItHasInTime) {
  PretrainingSettings settings = tiny(2);
  settings.replicas = 2;
  for (const bool compare : {false, true}) {
    const PretrainingPlan plan = plan_pretraining(settings, text_to_plan(), two_chips(),
                                                  {.compare = compare, .margin = 10, .time_limit = 1e-9});
    EXPECT_TRUE(plan.out_of_time);
    EXPECT_FALSE(plan.stopped);
    EXPECT_EQ(plan.small_estimates, 2U);
    EXPECT_FALSE(plan.frontier.empty());
    ASSERT_TRUE(plan.chosen);
    EXPECT_LE(plan.estimated.size(), compare ? 2U : 1U);
  }
}

/// Tiles have more memory left if state lies beside the chips, but there is none.
TEST(BertPlan, ComesClosestInBothMemories) {
  const PretrainingPlan plan = plan_pretraining(
      tiny(2), text_to_plan(), two_chips().with("tile_bytes", 300'000).with("streaming_bytes", 1000),
      {.estimates = 1, .time_limit = 1e-9});
  ASSERT_EQ(plan.estimated.size(), 1U);
  EXPECT_FALSE(plan.chosen);
  EXPECT_EQ(plan.estimated[0].extrapolated->streaming_bytes, 0U);
  EXPECT_GT(plan.frontier.back().extrapolated->streaming_bytes, 1000U);
  EXPECT_TRUE(says(plan.overflow, "in the closest the fullest tile lacks"));
}

/// Parameters and their gradients alone take more than both chips have.
TEST(BertPlan, SaysHowFarTheClosestIsFromFitting) {
  PretrainingSettings settings = tiny(2);
  settings.config = graph::BertConfig::named("mini");
  const PretrainingPlan plan =
      plan_pretraining(settings, text_to_plan(),
                       two_chips().with("tile_bytes", 600'000).with("streaming_bytes", 0), {.estimates = 1});
  ASSERT_FALSE(plan.chosen);
  ASSERT_EQ(plan.estimated.size(), 1U);
  const PretrainingCost& closest = *plan.estimated[0].estimated;
  EXPECT_FALSE(closest.fits);
  EXPECT_EQ(closest.lacking_tile_bytes, closest.fullest_tile_bytes - 600'000);
  EXPECT_TRUE(says(plan.overflow, fmt::format("in the closest the fullest tile lacks {} bytes",
                                              closest.lacking_tile_bytes)));
  for (const PretrainingDivision& division : plan.frontier) EXPECT_FALSE(division.extrapolated->fits);
}

/// The first division needs four chips, the second puts both stages of a replica on one.
TEST(BertPlan, GoesOnWhereTheMachineCannotHaveTheGivenDivision) {
  PretrainingSettings settings = tiny(4);
  settings.replicas = 4;
  const PretrainingPlan plan =
      plan_pretraining(settings, text_to_plan(), two_chips(), {.estimates = 1, .compare = true});
  const PretrainingDivision& given = plan.estimated[0];
  ASSERT_TRUE(given.estimated);
  EXPECT_FALSE(given.estimated->fits);
  EXPECT_FALSE(given.estimated->has_figures());
  EXPECT_TRUE(says(given.estimated->overflow, "4 replicas"));
  EXPECT_FALSE(given.extrapolated);
  ASSERT_EQ(plan.chosen, 1U);
  EXPECT_TRUE(plan.estimated[1].estimated->fits);

  settings = tiny(2);
  settings.replicas = settings.stages = 2;
  const PretrainingPlan shared = plan_pretraining(settings, text_to_plan(), two_chips(),
                                                  {.estimates = 0, .compare = true, .time_limit = 1e-9});
  EXPECT_FALSE(shared.estimated[0].extrapolated);
}

TEST(BertPlan, ConsidersParametersThatTilesHaveNoRoomForIfTheyLieElsewhere) {
  PretrainingSettings settings = tiny(2);
  settings.config.num_hidden_layers = 30;
  const Machine small = two_chips().with("tile_bytes", 400'000);
  EXPECT_ERROR(
      "there is no way to divide 30 layers",
      plan_pretraining(settings, text_to_plan(), small.with("streaming_bytes", 0), {.estimates = 0}));
  EXPECT_FALSE(plan_pretraining(settings, text_to_plan(), small, {.estimates = 0}).frontier.empty());
}

TEST(BertPlan, SaysWhatStreamingMemoryLacks) {
  PretrainingSettings settings = tiny(2);
  settings.replicas = 2;
  settings.offload_from = 8192;
  const PretrainingPlan plan = plan_pretraining(
      settings, text_to_plan(), two_chips().with("streaming_bytes", 1000), {.estimates = 0, .compare = true});
  EXPECT_FALSE(plan.chosen);
  const PretrainingCost& given = *plan.estimated[0].estimated;
  EXPECT_LT(given.fullest_tile_bytes, plan.tile_bytes);
  EXPECT_TRUE(says(plan.overflow, "in the closest the streaming memory of a chip lacks " +
                                      std::to_string(given.streaming_bytes - 1000) + " bytes"));
}

/// A budget is for the whole network; small networks say nothing about it.
TEST(BertPlan, EstimatesAGivenMemoryBudget) {
  PretrainingSettings settings = tiny(2);
  settings.replicas = 2;
  settings.memory_budget = graph::kMachineMemory;
  const PretrainingPlan plan = plan_pretraining(settings, text_to_plan(), two_chips(),
                                                {.estimates = 0, .compare = true, .time_limit = 1e-9});
  EXPECT_TRUE(plan.estimated[0].estimated->fits);
  EXPECT_FALSE(plan.estimated[0].extrapolated);
  for (const PretrainingDivision& division : plan.frontier) EXPECT_FALSE(division.settings.memory_budget);
}

TEST(BertMemoryBudget, LetsAsFewLayersAsFitBeComputedAgain) {
  PretrainingSettings s = tiny(8);
  s.config.hidden_size = 32;
  s.config.intermediate_size = 128;
  s.config.num_hidden_layers = 4;
  s.phases[0].length = 64;
  for (const Machine& machine : {Machine::host(1), two_chips().with("chips", 1)}) {
    SCOPED_TRACE(machine.name());
    const auto trainer_with = [&](bool recompute, std::optional<uint64_t> budget) {
      s.recompute = recompute;
      s.memory_budget = budget;
      return BertTrainer::for_estimates(s, text_to_plan(), machine);
    };
    const uint64_t all = trainer_with(false, {}).step_cost().fullest_tile_bytes,
                   least = trainer_with(true, {}).step_cost().fullest_tile_bytes;
    ASSERT_LT(least, all);
    const uint64_t budget = (all + least) / 2;
    const BertTrainer trainer = trainer_with(false, budget);
    const graph::RunCost& cost = trainer.step_cost();
    EXPECT_EQ(cost.overflow, "");
    EXPECT_LE(cost.fullest_tile_bytes, budget);
    EXPECT_EQ(opened(trainer.graph()).nodes.size(), cost.operations.size());
    EXPECT_TRUE(says(trainer.settings_json(), std::to_string(budget)));
    EXPECT_USAGE_ERROR("more than its memory budget of 1000 bytes", trainer_with(false, 1000));
    EXPECT_USAGE_ERROR("leave out one of them", trainer_with(true, budget));
  }
}

TEST(BertPlan, RefusesWhatCannotBePlanned) {
  const auto error = [](const PretrainingSettings& settings, const Machine& machine) {
    return error_of<UsageError>([&] { plan_pretraining(settings, text_to_plan(), machine); });
  };
  EXPECT_TRUE(says(error(tiny(2), Machine::host(2)), "a plan is for a modelled machine"));
  PretrainingSettings two = tiny(2);
  two.phases.push_back(two.phases[0]);
  EXPECT_TRUE(says(error(two, two_chips()), "a plan is of packs of one length, and there are 2"));
  EXPECT_TRUE(says(error(tiny(100'000), two_chips()), "larger than the"));
  PretrainingSettings wrong = tiny(2);
  wrong.replicas = 3;
  EXPECT_TRUE(says(error(wrong, two_chips()), "cannot be divided among 3 replicas"));
  EXPECT_ERROR("there is no way to divide 2 layers",
               plan_pretraining(tiny(2), text_to_plan(),
                                two_chips().with("tile_bytes", 100).with("streaming_bytes", 0)));
  const auto plan_with = [](const PretrainingPlanOptions& options) {
    plan_pretraining(tiny(2), text_to_plan(), two_chips(), options);
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_USAGE_ERROR("a time limit is 0 (none) or more seconds, not -1", plan_with({.time_limit = -1}));
  EXPECT_USAGE_ERROR("more seconds, not nan", plan_with({.time_limit = kNan}));
  EXPECT_USAGE_ERROR("a margin is a fraction of 0 or more, not -0.5", plan_with({.margin = -0.5}));
  EXPECT_USAGE_ERROR("or more, not nan", plan_with({.margin = kNan}));
}

}  // namespace
}  // namespace tessera
