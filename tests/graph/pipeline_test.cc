// Pipelines: schedules as data, and networks whose micro-batches go through stages by these schedules.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/gradients.h>
#include <tessera/pipeline.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compare.h"
#include "graph/loop.h"
#include "graph/operation.h"
#include "graph/stages.h"
#include "graph/transforms/transforms.h"
#include "lower/placement.h"
#include "staged_networks.h"
#include "support/error_of.h"
#include "support/number_of.h"

namespace tessera::graph {
namespace {

using staged::chips;
using staged::equal_stages;
using staged::layer;
using staged::network;
using staged::Steps;
using staged::steps_of;
using testing::AnyOf;
using testing::HasSubstr;

constexpr PipelineKind kKinds[] = {PipelineKind::sequential, PipelineKind::grouped, PipelineKind::interleaved,
                                   PipelineKind::one_forward_one_backward};
constexpr PipelineKind kAllKinds[] = {PipelineKind::sequential, PipelineKind::grouped,
                                      PipelineKind::interleaved, PipelineKind::one_forward_one_backward,
                                      PipelineKind::zero_bubble};

template <class Act>
std::string message_of(const Act& act) {
  return test::error_of<UsageError>(act);
}

TEST(PipelineSchedules, PassEachMicroBatchForwardAndBackwardOnce) {
  for (const PipelineKind kind : kAllKinds)
    for (const uint32_t stages : {1U, 2U, 3U, 4U, 8U})
      for (const uint32_t micro_batches : {2 * stages, 4 * stages, 1U, 3U, 7U}) {
        if (kind == PipelineKind::grouped && micro_batches % (2 * stages) != 0) continue;
        for (const bool recomputes : {false, true}) {
          SCOPED_TRACE(fmt::format("{}, {} stages, {}", name_of(kind), stages, micro_batches));
          const std::set<uint32_t> recomputed = recomputes ? std::set{stages - 1} : std::set<uint32_t>();
          const PipelineSchedule schedule = pipeline_schedule({kind, recomputed}, stages, micro_batches);
          EXPECT_NO_THROW(check(schedule));
          for (uint32_t s = 0; s < stages; ++s)
            EXPECT_EQ(schedule.of_stage(s).size(),
                      (2U + recomputed.count(s) + (splits_backward(kind) ? 1 : 0)) * micro_batches);
        }
      }
}

TEST(PipelineSchedules, KeepAsManyMicroBatchesAsTheyPromiseAndLeaveTheBubblesOfTheirClosedForms) {
  constexpr uint32_t kStages = 4, kMicroBatches = 32;
  const std::vector<StageTimes> equal(kStages, {1, 2});
  const auto of = [&](PipelineKind kind) {
    return analyse(pipeline_schedule({kind, {}}, kStages, kMicroBatches), equal);
  };
  EXPECT_EQ(of(PipelineKind::sequential).in_flight, (std::vector<uint32_t>{1, 1, 1, 1}));
  EXPECT_EQ(of(PipelineKind::grouped).in_flight, (std::vector<uint32_t>{7, 5, 3, 1}));
  EXPECT_EQ(of(PipelineKind::interleaved).in_flight, (std::vector<uint32_t>{4, 3, 2, 1}));
  EXPECT_EQ(of(PipelineKind::one_forward_one_backward).in_flight, (std::vector<uint32_t>{4, 3, 2, 1}));
  // Narayanan et al. 2021, section 2.2: bubbles of (S − 1) forward and backward passes.
  const double closed = kMicroBatches / (kMicroBatches + kStages - 1.0);
  EXPECT_NEAR(of(PipelineKind::one_forward_one_backward).used, closed, 1e-12);
  EXPECT_NEAR(of(PipelineKind::interleaved).used, closed, 1e-12);
  EXPECT_GE(of(PipelineKind::grouped).used, kMicroBatches / (kMicroBatches + 2 * (kStages - 1.0)) - 1e-12);
  EXPECT_NEAR(of(PipelineKind::sequential).used, 1.0 / kStages, 1e-12);
  // Qi et al. 2024: a third of 1f1b's bubbles, if all passes take the same time.
  EXPECT_EQ(of(PipelineKind::zero_bubble).in_flight, (std::vector<uint32_t>{4, 4, 4, 4}));
  EXPECT_NEAR(of(PipelineKind::zero_bubble).used, 3.0 * kMicroBatches / (3 * kMicroBatches + kStages - 1),
              1e-12);
}

TEST(PipelineSchedules, ArePrintedByStage) {
  EXPECT_EQ(to_string(pipeline_schedule({PipelineKind::one_forward_one_backward, {1}}, 2, 3)),
            "stage 0: F0 F1 ..... B0 F2    B1 ..... B2\n"
            "stage 1: .. F0 R0 B0 F1 R1 B1 F2 R2 B2 ..\n");
  EXPECT_EQ(to_string(pipeline_schedule({PipelineKind::zero_bubble}, 2, 3)),
            "stage 0: F0 F1 .. I0 W0 F2 I1 W1 I2 W2\n"
            "stage 1: .. F0 I0 F1 I1 W0 F2 I2 W1 W2\n");
}

TEST(PipelineSchedules, NameWhatTheyCannotDo) {
  EXPECT_THAT(message_of([] { pipeline_named("gpipe"); }),
              HasSubstr("sequential, grouped, interleaved, 1f1b"));
  EXPECT_THAT(message_of([] {
                pipeline_schedule({PipelineKind::grouped, {}}, 2, 6);
              }),
              HasSubstr("a grouped pipeline of 2 stages takes a multiple of 4 micro-batches, not 6"));
  EXPECT_THAT(message_of([] { pipeline_schedule({}, 2, 0); }), HasSubstr("2 stages and 0 micro-batches"));
  EXPECT_THAT(message_of([] {
                pipeline_schedule({PipelineKind::interleaved, {3}}, 2, 4);
              }),
              HasSubstr("stage 3 is to be recomputed; the stages are 0 to 1"));
  for (const PipelineKind kind : kKinds)
    for (const uint32_t stages : {1U << 31, ~0U})
      EXPECT_THAT(message_of([&] {
                    pipeline_schedule({kind, {}}, stages, 4);
                  }),
                  HasSubstr("micro-batches may pass 16777216 stages in all"));
  PipelineSchedule schedule = pipeline_schedule({PipelineKind::interleaved, {}}, 2, 2);
  EXPECT_THAT(message_of([&] { analyse(schedule, {}); }), HasSubstr("times of 0 stages; the schedule has 2"));
  for (const double time : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()})
    for (const std::vector<StageTimes>& times :
         {std::vector<StageTimes>{{1, 2}, {time, 2}}, std::vector<StageTimes>{{1, time}, {1, 2}}})
      EXPECT_THAT(message_of([&] { analyse(schedule, times); }), HasSubstr("it must take a time above 0"));
  std::swap(schedule.slots[1], schedule.slots[2]);
  EXPECT_THAT(message_of([&] { check(schedule); }), HasSubstr("B0 of stage 1 before its forward pass"));
  schedule.slots.pop_back();
  EXPECT_FALSE(message_of([&] { check(schedule); }).empty());
  PipelineSchedule split = pipeline_schedule({PipelineKind::zero_bubble}, 1, 2);
  std::swap(split.slots[1], split.slots[2]);
  EXPECT_THAT(message_of([&] { check(split); }), HasSubstr("W0 of stage 0 before its gradients of inputs"));
  split = pipeline_schedule({PipelineKind::zero_bubble}, 1, 2);
  split.slots.pop_back();
  EXPECT_THAT(message_of([&] { check(split); }), HasSubstr("ends after 2 forward and 1 backward passes"));
}

TEST(Pipelines, GiveTheBitsOfASequentialOne) {
  test::EveryNth some(7);  // every fifth has no 1f1b on chips
  for (const uint32_t stages : {1U, 2U, 4U})
    for (const Machine& machine : {Machine::host(2), chips(stages)}) {
      TrainingOptions options{.optimizer = Adam{}, .micro_batches = 4 * stages};
      const Steps expected = steps_of(network(stages, 1, options), machine);
      for (const PipelineKind kind : kKinds)
        for (const std::set<uint32_t>& recomputed : std::set<std::set<uint32_t>>{{}, {0}, {0, stages - 1}}) {
          if (!some.takes()) continue;
          SCOPED_TRACE(fmt::format("{} stages, {}, {} recomputed, {}", stages, name_of(kind),
                                   recomputed.size(), machine.name()));
          options.pipeline = {kind, recomputed};
          const Steps found = steps_of(network(stages, 1, options), machine);
          EXPECT_EQ(found.results, expected.results);
          EXPECT_EQ(found.state, expected.state);
        }
    }
}

/// Means over replicas that the backward pass takes too.
TEST(Pipelines, HandOnMeansOverReplicas) {
  const auto trained = [](const Pipeline& pipeline) {
    constexpr uint32_t kRows = 4, kWidth = 8;
    auto body = std::make_shared<Graph>();
    const Value x = body->input("x", {kRows, kWidth}), w = body->input("w", {kWidth, kWidth});
    body->output("y", linear(x, w));
    Graph g;
    const auto layer_on = [&](uint32_t stage, Value h) {
      const std::string name = fmt::format("w{}", stage);
      return g.call(body, {h, g.parameter(name, {kWidth, kWidth}, Initial::normal(0.5))},
                    {.stage = stage})[0];
    };
    const Value h = layer_on(0, g.input("x", {kRows, kWidth}));
    const Value loss = mean(square(layer_on(1, h * mean_over_replicas(mean(h, {0})))));
    g.output("loss", loss);
    add_training(loss, {.micro_batches = 4, .pipeline = pipeline, .replicas = 2});
    return g;
  };
  const Steps expected = steps_of(trained({}), chips(4));
  uint32_t number = 0;
  for (const PipelineKind kind : kKinds)
    for (const std::set<uint32_t>& recomputed : {std::set<uint32_t>{}, {0, 1}}) {
      if (!test::takes_half(number++)) continue;
      SCOPED_TRACE(fmt::format("{}, {} recomputed", name_of(kind), recomputed.size()));
      const Graph graph = trained({kind, recomputed});
      const Steps found = steps_of(graph, chips(4));
      EXPECT_EQ(found.results, expected.results);
      EXPECT_EQ(found.state, expected.state);
      // Those within passes are part of them.
      const RunCost cost = Session(graph, chips(4)).cost();
      ASSERT_FALSE(cost.lanes.empty());
      EXPECT_LT(std::ranges::count(cost.lanes[0].spans, ChipSpan::Kind::collective, &ChipSpan::kind), 4);
    }
}

/// So many that they are gathered on few tiles of each stage that takes them.
TEST(Pipelines, TakeIdsOfMicroBatches) {
  constexpr uint32_t kRows = 32, kIds = 16, kWidth = 8, kTable = 5;
  auto body = std::make_shared<Graph>();
  const Value x = body->input("x", {kRows, kIds, kWidth}), w = body->input("w", {kWidth, kWidth}),
              ids = body->input("ids", {kRows, kIds}, Type::u32),
              table = body->input("table", {kTable, kWidth});
  body->output("y", tanh(linear(x, w)) + embedding(ids, table));
  const Machine machine = Machine::find("m2000").with("chips", 2).with("tiles", 24);
  for (const PipelineKind kind : kKinds) {
    SCOPED_TRACE(name_of(kind));
    Graph g;
    const Value all = g.input("ids", {kRows, kIds}, Type::u32);
    const auto parameter = [&](const std::string& name, uint32_t rows) {
      return g.parameter(name, {rows, kWidth}, Initial::normal(0.5));
    };
    Value h = embedding(all, parameter("first", kTable));
    for (const uint32_t stage : {0U, 1U})
      h = g.call(body,
                 {h, parameter(fmt::format("w{}", stage), kWidth), all,
                  parameter(fmt::format("table{}", stage), kTable)},
                 {.stage = stage})[0];
    const Value loss = mean(square(h));
    g.output("loss", loss);
    add_training(loss, {.micro_batches = 4, .pipeline = {kind}});
    Session session(g, machine, {.seed = 5});
    expect_steps_like_float64(g, session, 2, [&](uint32_t) {
      WideArrays inputs = random_inputs(g);
      inputs["lr"] = {0.05};
      return inputs;
    });
  }
}

TEST(Pipelines, ShareChipsAmongStages) {
  // The first and the last stage hold the same table.
  const TrainingOptions options{.micro_batches = 6,
                                .pipeline = {PipelineKind::one_forward_one_backward, {1}}};
  const Graph apart = network(4, 1, options);
  Graph shared = apart;
  shared.place_stages({0, 1, 1, 0});
  EXPECT_EQ(steps_of(shared, chips(2)).state, steps_of(apart, chips(4)).state);
  EXPECT_EQ(Session(shared, chips(2)).cost().chips.size(), 2U);
  shared.place_stages({0, 1, 2, 0});
  EXPECT_THAT(
      message_of([&] { Session(shared, chips(4)); }),
      HasSubstr("stages are placed on 3 parts of the 4 chips of m2000, which cannot be divided equally"));
  EXPECT_THAT(message_of([&] { shared.place_stages({}); }), HasSubstr("stages have no places"));
  EXPECT_THAT(message_of([&] {
                shared.place_stages({0, 2});
              }),
              HasSubstr("a stage is placed on part 2 of the chips, and none on part 1"));
  shared.place_stages({0, 1});
  EXPECT_THAT(message_of([&] { Session(shared, chips(2)); }),
              HasSubstr("2 stages are placed; the graph has 4"));
}

/// The first and the last stage, neighbours, or all by turns.
TEST(Pipelines, GiveTheSameBitsOnSharedChips) {
  const std::vector<std::vector<uint32_t>> all_places = {{0, 1, 1, 0}, {0, 0, 1, 1}, {0, 1, 0, 1}};
  TrainingOptions options{.optimizer = Adam{}, .micro_batches = 8};
  const Steps expected = steps_of(network(4, 1, options), chips(4));
  test::EveryNth some(4);
  for (const std::vector<uint32_t>& places : all_places)
    for (const PipelineKind kind : kKinds) {
      if (!has_several_in_flight(kind) || !some.takes()) continue;
      SCOPED_TRACE(fmt::format("{}, the last stage on part {}", name_of(kind), places.back()));
      options.pipeline = {kind, {1, 3}};
      Graph graph = network(4, 1, options);
      graph.place_stages(places);
      const Steps found = steps_of(graph, chips(2));
      EXPECT_EQ(found.results, expected.results);
      EXPECT_EQ(found.state, expected.state);
    }
}

/// Gradients of weights that are computed later are added in the same order.
TEST(Pipelines, GiveTheSameBitsWithGradientsOfWeightsApart) {
  for (const Machine& machine : {Machine::host(2), chips(4)}) {
    const Steps expected = steps_of(network(4, 2, {.optimizer = Adam{}, .micro_batches = 8}), machine);
    for (const std::set<uint32_t>& recomputed : {std::set<uint32_t>{}, {0, 3}}) {
      SCOPED_TRACE(fmt::format("{}, {} recomputed", machine.name(), recomputed.size()));
      TrainingOptions options{
          .optimizer = Adam{}, .micro_batches = 8, .pipeline = {PipelineKind::zero_bubble, recomputed}};
      Graph graph = network(4, 2, options);
      const Steps found = steps_of(graph, machine);
      EXPECT_EQ(found.results, expected.results);
      EXPECT_EQ(found.state, expected.state);
      graph.place_stages({0, 1, 1, 0});
      EXPECT_EQ(steps_of(graph, machine.is_host() ? machine : chips(2)).state, expected.state);
      options.pipeline.offload_from = 0;
      EXPECT_EQ(steps_of(network(4, 2, options), machine).state, expected.state);
    }
  }
}

/// Except in the first stage, which sends nothing back.
TEST(Pipelines, DivideBackwardCallsForGradientsOfWeights) {
  const Graph g = equal_stages(3, 6, {PipelineKind::zero_bubble});
  const auto loop = std::ranges::find_if(g.nodes(), is_loop);
  ASSERT_TRUE(loop != g.nodes().end());
  std::vector<std::shared_ptr<const Graph>> called;
  for (const Node& node : loop->body->nodes())
    if (node.backward && node.body) called.push_back(node.body);
  EXPECT_EQ(called.size(), 2U * 2 + 1);
  EXPECT_EQ(std::set(called.begin(), called.end()).size(), 3U);
}

/// A stage without a weight, and one whose weight is frozen, have no gradients of weights; the first stage
/// has no gradients of inputs.
TEST(Pipelines, HaveOnlyThePassesThatTheirStagesNeed) {
  constexpr uint32_t kRows = 4, kWidth = 8;
  auto product = std::make_shared<Graph>(), map = std::make_shared<Graph>();
  const Value x = product->input("x", {kRows, kWidth}), w = product->input("w", {kWidth, kWidth});
  product->output("y", tanh(linear(x, w)));
  map->output("y", gelu(map->input("x", {kRows, kWidth})));
  const auto trained = [&](const Pipeline& pipeline) {
    Graph g;
    const auto layer_on = [&](uint32_t stage, Value h, Value weight) {
      return g.call(product, {h, weight}, {.stage = stage})[0];
    };
    const auto weight = [&](const std::string& name) {
      return g.parameter(name, {kWidth, kWidth}, Initial::normal(0.5));
    };
    const Value frozen = weight("w2");
    Value h = layer_on(0, g.input("x", {kRows, kWidth}), weight("w0"));
    h = g.call(map, {h}, {.stage = 1})[0];
    h = layer_on(3, layer_on(2, h, frozen), weight("w3"));
    const Value loss = mean(square(h));
    g.output("loss", loss);
    add_training(loss, {.micro_batches = 8, .pipeline = pipeline, .frozen = {frozen}});
    return g;
  };
  using enum ActionKind;
  const std::vector<std::set<ActionKind>> expected_kinds = {{forward, backward_weight},
                                                            {forward, backward_input},
                                                            {forward, backward_input},
                                                            {forward, backward_input, backward_weight}};
  for (const Machine& machine : {Machine::host(2), chips(4)}) {
    SCOPED_TRACE(machine.name());
    const Graph g = trained({PipelineKind::zero_bubble});
    EXPECT_EQ(steps_of(g, machine).state, steps_of(trained({}), machine).state);
    const ActionList list = Session(g, machine).cost().actions.value();
    std::vector<std::set<ActionKind>> kinds(4);
    for (const PipelineAction& action : list.actions)
      if (is_pass(action.kind)) kinds[action.stage].insert(action.kind);
    EXPECT_TRUE(kinds == expected_kinds) << to_string(list);
    for (const uint32_t in_flight : analyse(list, std::vector<StageTimes>(4)).in_flight)
      EXPECT_LE(in_flight, 4U);
  }
}

TEST(Pipelines, WaitLessWithGradientsOfWeightsApart) {
  constexpr uint32_t kStages = 4, kMicroBatches = 8;
  const auto cost = [&](PipelineKind kind) {
    return Session(equal_stages(kStages, kMicroBatches, {kind}), chips(kStages)).cost();
  };
  const RunCost whole = cost(PipelineKind::one_forward_one_backward), split = cost(PipelineKind::zero_bubble);
  EXPECT_LT(split.seconds, whole.seconds);
  std::set<ChipSpan::Kind> kinds;
  for (const ChipSpan& span : split.lanes.at(1).spans) kinds.insert(span.kind);
  EXPECT_TRUE(kinds.contains(ChipSpan::Kind::backward_input));
  EXPECT_TRUE(kinds.contains(ChipSpan::Kind::backward_weight));
  EXPECT_FALSE(kinds.contains(ChipSpan::Kind::backward));
}

TEST(Pipelines, OfASingleMicroBatchAreCheckedToo) {
  const auto message = [](const Pipeline& p) { return message_of([&] { network(2, 1, {.pipeline = p}); }); };
  EXPECT_THAT(message({PipelineKind::grouped, {}}), HasSubstr("a multiple of 4 micro-batches, not 1"));
  EXPECT_THAT(message({PipelineKind::sequential, {2}}), HasSubstr("the stages are 0 to 1"));
  EXPECT_THAT(message({PipelineKind::sequential, {}, 0}),
              HasSubstr("a sequential pipeline has none in flight"));
  EXPECT_NO_THROW(network(2, 1, {.pipeline = {PipelineKind::one_forward_one_backward, {1}}}));
}

TEST(Pipelines, RecomputeCallsByTheFunctionOfTheForwardPass) {
  const Graph g = equal_stages(2, 1, {}, true);
  std::vector<std::shared_ptr<const Graph>> called;
  for (const Node& node : g.nodes())
    if (node.body) called.push_back(node.body);
  EXPECT_EQ(called.size(), 3U * 2);  // forward, again, and backward
  EXPECT_EQ(std::set(called.begin(), called.end()).size(), 2U);
}

/// Cycles of the chip that works longest, without waiting for others and for its own tiles.
double busiest(const RunCost& cost) {
  double most = 0;
  for (const ChipCost& chip : cost.chips) {
    double cycles = 0;
    for (const auto& [phase, own] : chip.cycles) cycles += phase == "sync" ? 0 : own;
    most = std::max(most, cycles);
  }
  return most;
}

TEST(Pipelines, LeaveTheBubblesOfTheirClosedForms) {
  constexpr uint32_t kStages = 4, kMicroBatches = 32;
  const auto cost = [&](PipelineKind kind) {
    return Session(equal_stages(kStages, kMicroBatches, {kind, {}}, false, {}, true), chips(kStages)).cost();
  };
  const double one = cost(PipelineKind::sequential).seconds;
  for (const auto& [kind, passes] : {std::pair(PipelineKind::grouped, kMicroBatches + 2 * (kStages - 1)),
                                     {PipelineKind::interleaved, kMicroBatches + kStages - 1},
                                     {PipelineKind::one_forward_one_backward, kMicroBatches + kStages - 1}}) {
    const RunCost found = cost(kind);
    double cycles = 0;
    for (const auto& [phase, own] : found.chips[0].cycles) cycles += own;
    const double closed = busiest(found) * passes / kMicroBatches;
    EXPECT_LE(cycles, 1.02 * closed) << name_of(kind);
    EXPECT_GT(one / found.seconds, 0.8 * kStages) << name_of(kind);
  }
}

/// The passes of a lane through one stage; only the beginning of passes with interruptions.
std::vector<StagePass> passes_of(const ChipLane& lane, uint32_t stage, bool are_interrupted) {
  std::vector<StagePass> passes;
  for (const ChipSpan& span : lane.spans)
    if (span.kind <= ChipSpan::Kind::backward_weight && span.stage == stage) {
      const StagePass pass{static_cast<PassKind>(span.kind), span.stage, span.micro_batch};
      if (!are_interrupted || std::ranges::find(passes, pass) == passes.end()) passes.push_back(pass);
    }
  return passes;
}

TEST(Pipelines, HaveALaneForEachChipWithThePassesOfTheScheduleAndTheCyclesOfTheAccount) {
  constexpr uint32_t kStages = 4;
  for (const PipelineKind kind : kKinds)
    for (const std::set<uint32_t>& recomputed : {std::set<uint32_t>{}, {0, 2}})
      for (const uint32_t micro_batches : {8U, 64U}) {
        SCOPED_TRACE(fmt::format("{}, {} recomputed, {}", name_of(kind), recomputed.size(), micro_batches));
        const Pipeline pipeline = {kind, recomputed};
        const RunCost cost = Session(equal_stages(kStages, micro_batches, pipeline), chips(kStages)).cost();
        const PipelineSchedule schedule = pipeline_schedule(pipeline, kStages, micro_batches);
        ASSERT_EQ(cost.lanes.size(), kStages);
        double last = 0;
        for (const auto& [phase, cycles] : cost.cycles) last += cycles;
        for (uint32_t chip = 0; chip < kStages; ++chip) {
          const std::vector<ChipSpan>& spans = cost.lanes[chip].spans;
          EXPECT_EQ(cost.lanes[chip].chip, cost.chips[chip].chip);
          EXPECT_NEAR(spans.back().end, last, 1e-9 * last);
          double waiting = 0, sync = 0;
          for (size_t i = 0; i < spans.size(); ++i) {
            EXPECT_GT(spans[i].end, spans[i].begin);
            EXPECT_EQ(spans[i].begin, i == 0 ? 0 : spans[i - 1].end);
            if (spans[i].kind == ChipSpan::Kind::waiting) waiting += spans[i].end - spans[i].begin;
          }
          // Until a chip finishes, its waiting counts as sync.
          double cycles = 0;
          for (const auto& [phase, own] : cost.chips[chip].cycles) {
            cycles += own;
            sync += phase == "sync" ? own : 0;
          }
          EXPECT_LE(waiting, (sync + last - cycles) * (1 + 1e-9));
          const bool is_in_order = pipeline == Pipeline();
          EXPECT_TRUE(passes_of(cost.lanes[chip], chip, is_in_order) == schedule.of_stage(chip));
        }
      }
}

/// An estimate repeats costs that it has counted once; a walk does not.
TEST(Pipelines, AreFollowedAlikeByTheAccountAndByAWalk) {
  const machine::Machine machine = chips(4).model();
  Graph g = equal_stages(4, 32, {PipelineKind::one_forward_one_backward, {1}});
  transform(g, session_transforms(), machine);
  const Placed placed = place_graph(g, machine, {}, 0, bound::Runs::resumed);
  compiler::StepWatch counted(placed.lowered.steps_of_passes()), walked(placed.lowered.steps_of_passes());
  const bound::Arrays none(*placed.program);
  std::vector<engine::TraceEvent> trace;
  placed.program->estimate(none, nullptr, &counted);
  placed.program->estimate(none, &trace, &walked);
  ASSERT_EQ(counted.chips().size(), 4U);
  for (size_t chip = 0; chip < 4; ++chip) {
    const auto &spans = counted.chips()[chip], &others = walked.chips()[chip];
    ASSERT_EQ(spans.size(), others.size());
    for (size_t i = 0; i < spans.size(); ++i) {
      EXPECT_EQ(spans[i].kind, others[i].kind);
      EXPECT_EQ(spans[i].step, others[i].step);
      EXPECT_EQ(spans[i].execution, others[i].execution);
      EXPECT_NEAR(spans[i].end, others[i].end, 1e-9 * others.back().end);
    }
  }
}

TEST(Pipelines, WaitAsTheirSchedulesDo) {
  constexpr uint32_t kStages = 4, kMicroBatches = 32;
  const Pipeline pipeline = {PipelineKind::one_forward_one_backward, {}};
  const RunCost cost = Session(equal_stages(kStages, kMicroBatches, pipeline), chips(kStages)).cost();
  // The chip of the last stage waits for its first micro-batch, and at the end for the others.
  const std::vector<ChipSpan>& spans = cost.lanes.back().spans;
  double waiting = 0;
  for (const ChipSpan& span : spans)
    waiting += span.kind == ChipSpan::Kind::waiting ? span.end - span.begin : 0;
  EXPECT_NEAR(1 - waiting / spans.back().end, kMicroBatches / (kMicroBatches + kStages - 1.0), 0.03);
  EXPECT_TRUE(Session(equal_stages(1, 4, pipeline), chips(1)).cost().lanes.empty());
  EXPECT_TRUE(Session(equal_stages(2, 4, pipeline), Machine::host(2)).cost().lanes.empty());
}

TEST(Pipelines, SumTheGradientsOfAStageWhileOthersWork) {
  constexpr uint32_t kStages = 4;
  const Machine machine = chips(2 * kStages).with("link_gb_per_second", 1).with("tile_bytes", 1'000'000);
  std::vector<Steps> steps;
  std::vector<RunCost> costs;
  for (const bool overlap : {false, true}) {
    const Graph graph = equal_stages(kStages, kStages, {PipelineKind::one_forward_one_backward, {}}, false,
                                     {.replicas = 2, .overlap = overlap});
    steps.push_back(steps_of(graph, machine));
    costs.push_back(Session(graph, machine).cost());
  }
  EXPECT_EQ(steps[0].results, steps[1].results);
  EXPECT_EQ(steps[0].state, steps[1].state);
  EXPECT_LT(costs[1].seconds, costs[0].seconds);
  EXPECT_TRUE(costs[0].under_way.empty());
  ASSERT_FALSE(costs[1].under_way.empty());
  const auto end_of = [&](uint32_t stage) {
    double end = 0;
    for (const ChipSpan& span : costs[1].lanes.at(stage).spans)
      if (span.kind == ChipSpan::Kind::backward) end = span.end;
    return end;
  };
  const double first = costs[1].under_way.front().begin;
  EXPECT_GE(first, end_of(kStages - 1));
  EXPECT_LT(first, end_of(0));
}

TEST(Pipelines, KeepWhatTheirScheduleSays) {
  constexpr uint32_t kStages = 4, kMicroBatches = 16;
  const auto bytes = [&](const Pipeline& pipeline, bool recompute = false) {
    return Session(equal_stages(kStages, kMicroBatches, pipeline, recompute), chips(kStages))
        .cost()
        .chips[0]
        .bytes;
  };
  const std::set<uint32_t> all = {0, 1, 2, 3};
  const uint64_t sequential = bytes({}), grouped = bytes({PipelineKind::grouped, {}}),
                 interleaved = bytes({PipelineKind::interleaved, {}}),
                 recomputed = bytes({PipelineKind::interleaved, all}),
                 by_calls = bytes({PipelineKind::interleaved, {}}, true);
  EXPECT_LT(sequential, interleaved);
  EXPECT_LT(interleaved, grouped);
  EXPECT_LT(recomputed, interleaved);
  EXPECT_LT(by_calls, interleaved);
  const std::string overflow =
      Session(equal_stages(2, 8, {PipelineKind::grouped, {}}), chips(2).with("tile_bytes", 10000))
          .cost()
          .overflow;
  EXPECT_THAT(overflow, AnyOf(HasSubstr("chip 0 (stage 0), tile "), HasSubstr("chip 1 (stage 1), tile ")));
  EXPECT_THAT(overflow, HasSubstr("(recompute); streaming memory can hold those of several micro-batches"));
  Graph shared = network(4, 1, {.micro_batches = 8, .pipeline = {PipelineKind::interleaved, {}}});
  shared.place_stages({0, 1, 1, 0});
  EXPECT_THAT(Session(shared, chips(2).with("tile_bytes", 5000)).cost().overflow,
              AnyOf(HasSubstr("chip 0 (stages 0, 3), tile "), HasSubstr("chip 1 (stages 1, 2), tile ")));
}

/// The sums over micro-batches lie on the tiles, and of a micro-batch only the gradients of one layer at a
/// time.
TEST(Pipelines, AddGradientsOfALayerBeforeTheNext) {
  constexpr uint32_t kStages = 2, kWidth = 64, kLayers = 6;
  const auto bytes = [](uint32_t layers) {
    const TrainingOptions options{.micro_batches = 4,
                                  .pipeline = {PipelineKind::one_forward_one_backward, {0}}};
    return static_cast<double>(
        Session(network(kStages, layers, options, 6, kWidth), chips(kStages)).cost().bytes.at("gradient"));
  };
  constexpr double kSums = 4.0 * kStages * (kLayers - 2) * kWidth * kWidth;
  EXPECT_LT(bytes(kLayers) - bytes(2), 1.3 * kSums);
}

TEST(Pipelines, KeepActivationsInStreamingMemory) {
  for (const Machine& machine : {Machine::host(2), chips(2)}) {
    const Steps expected = steps_of(network(2, 1, {.micro_batches = 8}), machine);
    for (const PipelineKind kind : kKinds) {
      if (!has_several_in_flight(kind)) continue;
      for (const std::set<uint32_t>& recomputed : {std::set<uint32_t>{}, {0, 1}}) {
        SCOPED_TRACE(fmt::format("{}, {} recomputed", name_of(kind), recomputed.size()));
        const Steps found = steps_of(
            network(2, 1, {.micro_batches = 8, .pipeline = {kind, recomputed, 0}, .offload_from = 0}),
            machine);
        EXPECT_EQ(found.results, expected.results);
        EXPECT_EQ(found.state, expected.state);
      }
    }
  }
  const auto cost = [](std::optional<uint64_t> from, uint64_t streaming_bytes = 100'000'000) {
    const Graph g = equal_stages(4, 32, {PipelineKind::grouped, {}, from});
    return Session(g, chips(4).with("tile_bytes", 1e6).with("streaming_bytes", streaming_bytes)).cost();
  };
  const RunCost near = cost({}), far = cost(0), large = cost(1'000'000);
  EXPECT_LT(far.chips[0].bytes, near.chips[0].bytes);
  EXPECT_EQ(near.streaming_bytes, 0U);
  EXPECT_GT(far.streaming_bytes, 0U);
  EXPECT_GT(far.seconds, near.seconds);
  EXPECT_EQ(large.bytes, near.bytes);
  EXPECT_THAT(message_of([&] { cost(0, 0); }), HasSubstr("it is to lie in streaming memory, which"));
  const std::string overflow = cost(0, 1000).overflow;
  EXPECT_THAT(overflow, HasSubstr(" (stage "));
  EXPECT_THAT(overflow, HasSubstr(" bytes are activations of micro-batches in flight, of which recompu"));
  EXPECT_EQ(overflow.find("(shard"), std::string::npos) << overflow;
}

/// Passes bring weights, one of which two stages share, and the sums of their gradients to the tiles.
TEST(Pipelines, TakeWeightsFromStreamingMemory) {
  uint32_t number = 0;
  for (const PipelineKind kind : kKinds)
    for (const std::set<uint32_t>& recomputed : {std::set<uint32_t>{}, {0, 1}}) {
      if (!test::takes_half(number++)) continue;
      SCOPED_TRACE(fmt::format("{}, {} recomputed", name_of(kind), recomputed.size()));
      TrainingOptions options{.optimizer = Adam{}, .micro_batches = 8, .pipeline = {kind, recomputed}};
      const Graph near = network(2, 2, options);
      options.offload_weights_from = options.offload_gradients_from = 0;
      const Graph far = network(2, 2, options);
      for (const Machine& machine : {Machine::host(2), chips(2)}) {
        const Steps expected = steps_of(near, machine), found = steps_of(far, machine);
        EXPECT_EQ(found.results, expected.results);
        EXPECT_EQ(found.state, expected.state);
      }
      options.prefetch = true;
      const Machine slow = chips(2).with("streaming_gb_per_second", 1);
      const Steps ahead = steps_of(network(2, 2, options), slow), expected = steps_of(near, slow);
      EXPECT_EQ(ahead.results, expected.results);
      EXPECT_EQ(ahead.state, expected.state);
      const RunCost cost = Session(far, slow).cost();
      EXPECT_LT(Session(network(2, 2, options), slow).cost().seconds, cost.seconds);
      for (const ChipCost& chip : cost.chips) EXPECT_GT(chip.streaming_bytes, 0U);
      EXPECT_GT(cost.seconds, Session(near, slow).cost().seconds);
    }
}

/// Each replica keeps a part of the weights, beside the chips or on them.
TEST(Pipelines, GatherWeights) {
  for (const PipelineKind kind : kKinds) {
    SCOPED_TRACE(name_of(kind));
    TrainingOptions options{
        .optimizer = Adam{}, .micro_batches = 8, .pipeline = {kind, {0}}, .replicas = 2, .shard_from = 0};
    const Steps expected = steps_of(network(2, 1, options), chips(4));
    options.shard_weights_from = 0;
    for (const bool offloads : {false, true}) {
      if (offloads) options.offload_weights_from = options.offload_from = 0;
      const Steps found = steps_of(network(2, 1, options), chips(4));
      EXPECT_EQ(found.results, expected.results);
      EXPECT_EQ(found.state, expected.state);
    }
  }
}

/// Each replica keeps a part of the sums over micro-batches, whatever the order of the passes. The first and
/// the last stage share a weight.
TEST(Pipelines, DivideSumsOfGradients) {
  TrainingOptions options{.optimizer = Adam{.epsilon = 1e-3}, .micro_batches = 8, .replicas = 2};
  options.shard_from = 0;
  const Steps whole = steps_of(network(2, 1, options), chips(4));
  options.shard_gradients_from = 0;
  const Steps expected = steps_of(network(2, 1, options), chips(4));
  for (const auto& [name, values] : whole.state)
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(expected.state.at(name)[i], values[i], 1e-4 * (1 + std::abs(values[i]))) << name;
  for (const PipelineKind kind : kAllKinds)
    for (const bool offloads : {false, true}) {
      SCOPED_TRACE(fmt::format("{}{}", name_of(kind), offloads ? ", offloaded" : ""));
      TrainingOptions others = options;
      others.pipeline = {kind, {0}};
      if (offloads) others.offload_gradients_from = others.offload_weights_from = 0;
      const Steps found = steps_of(network(2, 1, others), chips(4));
      EXPECT_EQ(found.results, expected.results);
      EXPECT_EQ(found.state, expected.state);
    }
}

/// Two stages; the last one ends with a loop. Its passes take rows of a layer's result, and a number that
/// depends on all of them.
Graph network_with_slices(const TrainingOptions& options) {
  constexpr uint32_t kUnits = 16, kSlices = 3, kRowsOfSlice = 2, kRowsOfAll = kSlices * kRowsOfSlice;
  Graph g;
  const Value number = g.input("number", {}, Type::u32);
  const auto function = layer(kRowsOfAll, kUnits);
  Value h = g.input("x", {kRowsOfAll, kUnits});
  const Value scale_of_layers = mean(h, {0});
  for (uint32_t stage = 0; stage < 2; ++stage)
    h = g.call(
        function,
        {h, g.parameter(fmt::format("w{}", stage), {kUnits, kUnits}, Initial::normal(0.2)),
         g.parameter(fmt::format("b{}", stage), {kUnits}, Initial::normal(0.1)), scale_of_layers, number},
        {.stage = stage})[0];
  const Value table = g.parameter("table", {kUnits, kUnits}, Initial::normal(0.3)), scale = mean(square(h));
  auto slice = std::make_shared<Graph>();
  const Value rows = slice->input("rows", {kRowsOfSlice, kUnits});
  const Value own_table = slice->input("table", table.type()),
              own_scale = slice->input("scale", scale.type());
  slice->output("losses", mean(square(linear(rows, own_table))) * own_scale);
  const Value loss =
      mean(g.loop(slice, {h, table, scale},
                  {.count = kSlices, .indexed = {"rows"}, .stacked = {"losses"}, .stage = 1})[0]);
  g.output("loss", loss);
  add_training(loss, options);
  return g;
}

/// Sums that take long, of gradients that are themselves sums over the passes of a loop.
TEST(Pipelines, DivideSumsOfGradientsOfLoops) {
  const Machine slow = chips(4).with("link_gb_per_second", 0.001);
  TrainingOptions options{.optimizer = Sgd{}, .micro_batches = 4, .replicas = 2};
  options.shard_gradients_from = 0;
  const Steps expected = steps_of(network_with_slices(options), slow);
  for (const PipelineKind kind : {PipelineKind::grouped, PipelineKind::one_forward_one_backward}) {
    SCOPED_TRACE(name_of(kind));
    options.pipeline.kind = kind;
    const Steps found = steps_of(network_with_slices(options), slow);
    EXPECT_EQ(found.results, expected.results);
    EXPECT_EQ(found.state, expected.state);
  }
}

TEST(Pipelines, GiveTheBitsOfTheirCallsIfThoseAreRecomputed) {
  const auto steps = [](bool recompute, const Machine& machine) {
    const Graph g = equal_stages(2, 4, {PipelineKind::interleaved, {}}, recompute);
    return steps_of(g, machine).state;
  };
  for (const Machine& machine : {Machine::host(2), chips(2)})
    EXPECT_EQ(steps(true, machine), steps(false, machine));
}

TEST(Pipelines, RejectWhatPassesCannotHandOn) {
  auto body = std::make_shared<Graph>();
  body->output("y", body->input("x", {2, 2}) * 2);
  Graph g;
  const auto looped = [&](const Loop& how) {
    return message_of([&] { g.loop(body, {g.input(fmt::format("x{}", g.values().size()), {2, 2})}, how); });
  };
  const Pipeline interleaved = {PipelineKind::interleaved, {}};
  EXPECT_THAT(looped({.count = 2, .carried = {{"x", "y"}}, .pipeline = interleaved}),
              HasSubstr("nothing can be carried from pass to pass of a pipeline"));
  EXPECT_THAT(looped({.count = 2, .reversed = true, .pipeline = interleaved}), HasSubstr("run forward only"));
  EXPECT_THAT(looped({.count = 2, .pipeline = {PipelineKind::sequential, {0}, 0}}),
              HasSubstr("a sequential pipeline has none in flight: leave that out, or choose grouped"));
}

}  // namespace
}  // namespace tessera::graph
