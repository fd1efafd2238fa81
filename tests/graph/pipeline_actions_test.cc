// Lists of actions of pipelines: their meaning, refused lists, and programs that follow them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/graph.h>
#include <tessera/pipeline_actions.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "graph/transforms/transforms.h"
#include "lower/placement.h"
#include "program/uses.h"
#include "staged_networks.h"
#include "support/error_of.h"

namespace tessera::graph {
namespace {

using staged::chips;
using staged::equal_stages;
using staged::network;
using testing::AllOf;
using testing::HasSubstr;
using testing::Lt;
using testing::SizeIs;

constexpr PipelineKind kAllKinds[] = {PipelineKind::sequential, PipelineKind::grouped,
                                      PipelineKind::interleaved, PipelineKind::one_forward_one_backward,
                                      PipelineKind::zero_bubble};

template <class Act>
std::string refusal_of(const Act& act) {
  return test::error_of<UsageError>(act);
}

ActionList chain(PipelineKind kind, uint32_t stages, uint32_t micro_batches,
                 std::vector<uint32_t> places = {}, bool has_replicas = false) {
  return actions_of(pipeline_schedule({kind}, stages, micro_batches),
                    chain_of_stages(stages, std::move(places), has_replicas));
}

std::vector<std::string> texts_of(const std::vector<PipelineAction>& actions) {
  std::vector<std::string> texts;
  for (const PipelineAction& action : actions) texts.push_back(to_string(action));
  return texts;
}

TEST(PipelineActions, ArePrintedByPartOfTheChips) {
  const PipelineSchedule schedule = pipeline_schedule({PipelineKind::one_forward_one_backward, {1}}, 2, 3);
  EXPECT_EQ(to_string(actions_of(schedule, chain_of_stages(2, {}, true))),
            "chips 0: 0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0F2 0SEND_F2 0RECV_B1 0B1 0RECV_B2 0B2 "
            "0REDUCE_GRAD:1\n"
            "chips 1: 1RECV_F0 1F0 1RECV_F1 1R0 1B0 1SEND_B0 1F1 1R1 1B1 1RECV_F2 1SEND_B1 1F2 1R2 1B2 "
            "1REDUCE_GRAD:0 1SEND_B2\n");
  EXPECT_EQ(to_string(chain(PipelineKind::sequential, 2, 1, {0, 0})), "chips 0: 0F0 1F0 1B0 0B0\n");
  EXPECT_EQ(to_string(chain(PipelineKind::zero_bubble, 2, 2, {}, true)),
            "chips 0: 0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0I0 0W0 0RECV_B1 0I1 0W1 0REDUCE_GRAD:1\n"
            "chips 1: 1RECV_F0 1F0 1RECV_F1 1I0 1SEND_B0 1F1 1I1 1SEND_B1 1W0 1W1 1REDUCE_GRAD:0\n");
  StageLinks links{.places = {0, 1, 2}, .routes = {{0, 2, false, true}}, .summed_in_passes = {2}};
  EXPECT_EQ(to_string(actions_of(pipeline_schedule({}, 3, 1), links)),
            "chips 0: 0F0 0SEND_F0>2 0B0\n"
            "chips 1: 1F0 1B0\n"
            "chips 2: 2RECV_F0<0 2F0 2B0 2REDUCE_GRAD0\n");
}

std::vector<StagePass> passes_of_stage(const ActionList& list, uint32_t stage) {
  std::vector<StagePass> passes;
  for (const PipelineAction& action : list.of_stage(stage))
    if (is_pass(action.kind))
      passes.push_back({static_cast<PassKind>(action.kind), action.stage, action.micro_batch});
  return passes;
}

TEST(PipelineActions, CanRunAndHaveThePassesOfTheirSchedules) {
  for (const PipelineKind kind : kAllKinds)
    for (const uint32_t stages : {1U, 2U, 4U})
      for (const bool recomputes : {false, true}) {
        SCOPED_TRACE(fmt::format("{}, {} stages, {}", name_of(kind), stages, recomputes));
        const std::set<uint32_t> recomputed = recomputes ? std::set{0U, stages - 1} : std::set<uint32_t>();
        const PipelineSchedule schedule = pipeline_schedule({kind, recomputed}, stages, 2 * stages);
        const ActionList list = actions_of(schedule, chain_of_stages(stages, {}, true));
        EXPECT_NO_THROW(check(list));
        for (uint32_t s = 0; s < stages; ++s) EXPECT_TRUE(passes_of_stage(list, s) == schedule.of_stage(s));
      }
}

TEST(PipelineActions, AreReadFromTheirText) {
  for (const PipelineKind kind : kAllKinds)
    for (const std::vector<uint32_t>& places :
         {std::vector<uint32_t>{0, 1, 2, 3}, {0, 1, 1, 0}, {0, 0, 0, 0}}) {
      SCOPED_TRACE(fmt::format("{}, the last stage on part {}", name_of(kind), places.back()));
      const ActionList list = chain(kind, 4, 8, places, true), found = read_actions(to_string(list));
      EXPECT_EQ(found.stages, 4U);
      EXPECT_EQ(found.micro_batches, 8U);
      EXPECT_EQ(found.links.places, places);
      EXPECT_EQ(found.links.buckets, list.links.buckets);
      for (uint32_t place = 0; place < list.places(); ++place)
        EXPECT_EQ(texts_of(found.of_place(place)), texts_of(list.of_place(place)));
    }
  // In the form of PyTorch, with empty entries where a chip does nothing.
  const ActionList list = read_actions(
      "0F0,0SEND_F0,,,0RECV_B0,0B0,0REDUCE_GRAD\r\n"
      ",,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD\n");
  EXPECT_EQ(to_string(list),
            "chips 0: 0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE_GRAD:0\n"
            "chips 1: 1RECV_F0 1F0 1B0 1SEND_B0 1REDUCE_GRAD:1\n");
  // A bucket of several stages, which their chips sum when all stages are done.
  const std::string summed =
      "chips 0: 0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE_GRAD:0\n"
      "chips 1: 1RECV_F0 1F0 1B0 1SEND_B0 1REDUCE_GRAD:0\n";
  EXPECT_EQ(to_string(read_actions(summed)), summed);
  // Gradients of inputs and of weights in one pass, or in two.
  EXPECT_EQ(to_string(read_actions("0F1 0F0 0I1 0B0 0W1")), "chips 0: 0F1 0F0 0I1 0B0 0W1\n");
}

TEST(PipelineActions, ThatCannotRunAreRefused) {
  const ActionList good = chain(PipelineKind::interleaved, 2, 2, {}, true);
  const auto position = [&](const std::string& text) {
    const std::vector<std::string> texts = texts_of(good.actions);
    return std::ranges::find(texts, text) - texts.begin();
  };
  const auto swapped = [&](const std::string& a, const std::string& b) {
    ActionList list = good;
    std::swap(list.actions.at(static_cast<size_t>(position(a))),
              list.actions.at(static_cast<size_t>(position(b))));
    return refusal_of([&] { check(list); });
  };
  EXPECT_THAT(swapped("0SEND_F0", "1RECV_F0"),
              HasSubstr("has 1RECV_F0 before 0SEND_F0, on which it depends"));
  EXPECT_THAT(swapped("1RECV_F0", "1F0"), HasSubstr("has 1F0 before 1RECV_F0, on which it depends"));
  EXPECT_THAT(swapped("0F0", "0SEND_F0"), HasSubstr("has 0SEND_F0 before 0F0, on which it depends"));
  EXPECT_THAT(swapped("0RECV_B0", "0B0"), HasSubstr("has 0B0 before 0RECV_B0, on which it depends"));
  EXPECT_THAT(swapped("1F0", "1B0"), HasSubstr("has 1B0 before 1F0, on which it depends"));
  EXPECT_THAT(swapped("1B1", "1REDUCE_GRAD:0"),
              HasSubstr("1REDUCE_GRAD:0 before the last backward pass of stage 1"));
  const auto changed = [&](const auto& change) {
    ActionList list = good;
    change(list);
    return refusal_of([&] { check(list); });
  };
  EXPECT_THAT(changed([](ActionList& list) { list.actions.pop_back(); }), HasSubstr("has no 0REDUCE_GRAD:1"));
  EXPECT_THAT(changed([](ActionList& list) { list.actions.push_back(list.actions.front()); }),
              HasSubstr("has 0F0 twice"));
  EXPECT_THAT(changed([](ActionList& list) { list.micro_batches = 1; }), HasSubstr("and 1 micro-batches"));
  EXPECT_THAT(changed([](ActionList& list) { list.micro_batches = 3; }), HasSubstr("has no 0F2"));
  EXPECT_THAT(changed([](ActionList& list) { list.actions[0].stage = 2; }),
              HasSubstr("has 2F0 and 2 stages"));
  EXPECT_THAT(changed([](ActionList& list) { list.links.routes.pop_back(); }),
              HasSubstr("has 1SEND_B0 and no such route between stages"));
  EXPECT_THAT(changed([](ActionList& list) {
                list.links.places = {0, 0};
              }),
              HasSubstr("has 0SEND_F0 between stages on the same chips"));
  EXPECT_THAT(changed([](ActionList& list) { list.links.places = {0}; }),
              HasSubstr("1 stages are placed; there are 2"));
  EXPECT_THAT(changed([](ActionList& list) { list.links.buckets.pop_back(); }),
              HasSubstr("has 0REDUCE_GRAD:1 and no such bucket"));
  EXPECT_THAT(refusal_of([] { chain_of_stages(2, {0, 2}); }), HasSubstr("and none on part 1"));
  ActionList split = chain(PipelineKind::zero_bubble, 1, 1);
  std::swap(split.actions.at(1), split.actions.at(2));
  EXPECT_THAT(refusal_of([&] { check(split); }), HasSubstr("has 0W0 before 0I0, on which it depends"));
}

TEST(PipelineActions, ThatCannotBeReadAreRefused) {
  const auto message = [](const std::string& text) { return refusal_of([&] { read_actions(text); }); };
  EXPECT_THAT(message(""), HasSubstr("a list of actions is empty"));
  EXPECT_THAT(message("0F0 0X0"), HasSubstr("unknown action 'X'"));
  for (const std::string text : {"F0", "0F", "0F0>1", "0SEND_F0<1", "0F0:1", "0SEND_F0>", "0"})
    EXPECT_THAT(message(text), HasSubstr(fmt::format("'{}' is no action", text)));
  EXPECT_THAT(message("0F0 0SEND_F0"), HasSubstr("'0SEND_F0' has no stage at its other end"));
  EXPECT_THAT(message("0F0 0B0\n0F1"), HasSubstr("stage 0 has actions on chips 0 and 1"));
  EXPECT_THAT(message("0F0 2F0"), HasSubstr("stage 2 has actions, and stage 1 has none"));
  EXPECT_THAT(message("0F4000000000"), HasSubstr("a list of 1 actions names micro-batch 4000000000"));
  EXPECT_THAT(message("0F0 0B0 0REDUCE_GRAD:4000000000"), HasSubstr("names bucket 4000000000"));
  EXPECT_THAT(message("0F0 0B0 0I0"), HasSubstr("has 0I0 twice"));
  EXPECT_THAT(message("0F0 0REDUCE_GRAD:0 0B0"),
              HasSubstr("has 0REDUCE_GRAD:0 before the last backward pass of stage 0"));
  // Chips 1 wait as well, for a sum at the right place.
  EXPECT_THAT(message("0F0 0REDUCE_GRAD:1 0B0 0REDUCE_GRAD:0\n1F0 1B0 1REDUCE_GRAD:0"),
              HasSubstr("has 0REDUCE_GRAD:1 before the last backward pass of stage 0"));
  EXPECT_THAT(message("0F0 0F1 0B0 0I1"), HasSubstr("has no 0B1"));
  for (const std::string line : {"chips 0 0F0 0B0", "chips 1: 0F0 0B0", "chips 0F0 0B0 0REDUCE_GRAD:0"})
    EXPECT_THAT(message(line), HasSubstr("the actions of part 0 of the chips: begin it with 'chips 0:'"));
  EXPECT_THAT(message("0F" + std::string(1'000'000, '1')),
              AllOf(HasSubstr("is no action"), SizeIs(Lt(300U))));
  EXPECT_THAT(message("0F0 0SEND_F0 1RECV_F0 1F0"), HasSubstr("between stages on the same chips"));
  EXPECT_THAT(message("0F0 0RECV_B0 0SEND_F0 0B0\n1RECV_F0 1F0 1B0 1SEND_B0"),
              HasSubstr("never ends: chips 0 before 0RECV_B0, chips 1 before 1RECV_F0 wait"));
  EXPECT_THAT(message("0F0 0SEND_F0 0RECV_B0 0B0\n1F0 1RECV_F0 1B0 1SEND_B0"),
              HasSubstr("has 1F0 before 1RECV_F0"));
}

TEST(PipelineActions, AreAnalysedWithoutRunning) {
  constexpr uint32_t kStages = 4, kMicroBatches = 32;
  const std::vector<StageTimes> equal(kStages, {1, 2});
  for (const PipelineKind kind : kAllKinds) {
    SCOPED_TRACE(name_of(kind));
    const ActionList list = chain(kind, kStages, kMicroBatches);
    // Exchanges that take no time delay nobody.
    const PipelineAnalysis found = analyse(list, equal),
                           expected = analyse(pipeline_schedule({kind}, kStages, kMicroBatches), equal);
    EXPECT_NEAR(found.used, expected.used, 1e-12);
    EXPECT_EQ(found.in_flight, expected.in_flight);
    EXPECT_EQ(found.busy, expected.busy);
    EXPECT_LT(analyse(list, equal, 0.25).used, found.used);
    // Two stages on the same chips are never idle at once.
    EXPECT_GT(analyse(chain(kind, kStages, kMicroBatches, {0, 1, 1, 0}), equal).used, found.used);
  }
  // A single backward pass takes all of its time, whichever it is.
  for (const char backward : {'B', 'I', 'W'}) {
    const ActionList list = read_actions(fmt::format("0F0 0{0}0 0F1 0{0}1", backward));
    const PipelineAnalysis found = analyse(list, std::vector<StageTimes>(1));
    EXPECT_EQ(found.time, 2 * 3);
    EXPECT_EQ(found.in_flight, (std::vector<uint32_t>{1}));
  }
  const ActionList all_on_one = chain(PipelineKind::grouped, 2, 4, {0, 0});
  EXPECT_NEAR(analyse(all_on_one, std::vector<StageTimes>(2)).used, 1, 1e-12);
  for (const double time : {-1.0, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THAT(refusal_of([&] { analyse(all_on_one, std::vector<StageTimes>(2), time); }),
                HasSubstr("it must take a time of at least 0"));
  EXPECT_THAT(refusal_of([&] { analyse(all_on_one, std::vector<StageTimes>(3)); }),
              HasSubstr("times of 3 stages; the schedule has 2"));
}

/// A program for stages with a chip each. The tiles that its steps touch show the actions of chips.
class ProgramActions {
 public:
  ProgramActions(const Placed& placed, uint32_t stages)
      : lowered_(placed.lowered),
        machine_(placed.program->machine()),
        program_(*placed.program->executable().program),
        uses_(program_),
        of_chips_(stages) {
    follow(program_.main(), 0);
  }

  const std::vector<std::vector<std::string>>& of_chips() const { return of_chips_; }

 private:
  void follow(program::StepId id, uint32_t execution) {
    if (id == program::kNoStep) return;
    if (const auto pass = lowered_.passes.find(id); pass != lowered_.passes.end())
      return note(id, pass->second, execution);
    const program::Step& step = program_.steps()[id];
    if (const auto* sequence = std::get_if<program::Sequence>(&step))
      for (const program::StepId inside : sequence->steps) follow(inside, execution);
    if (const auto* repeat = std::get_if<program::Repeat>(&step))
      for (uint32_t i = 0; i < repeat->count; ++i) follow(repeat->body, i);
    if (const auto* copy = std::get_if<program::Copy>(&step)) follow(copy->beside, execution);
    if (const auto* collect = std::get_if<program::Collect>(&step)) {
      const std::set<uint32_t> chips = chips_of_sum(program_.collectives()[collect->collective]);
      for (const uint32_t chip : chips)
        of_chips_[chip].push_back(to_string(PipelineAction{ActionKind::reduce_gradients, chip, 0, 0, sums_}));
      if (!chips.empty()) ++sums_;
      follow(collect->beside, execution);
    }
  }

  void note(program::StepId id, const Lowered::PassStep& pass, uint32_t execution) {
    const uint32_t micro_batch = pass.micro_batch + execution * pass.next, stage = pass.stage;
    const std::set<uint32_t> chips = chips_of(id);
    ASSERT_TRUE(chips.contains(stage));
    if (pass.kind != ChipSpan::Kind::exchange) {
      EXPECT_EQ(chips.size(), 1U) << "a pass of stage " << stage;
      of_chips_[stage].push_back(
          to_string(PipelineAction{static_cast<ActionKind>(pass.kind), stage, micro_batch}));
      return;
    }
    ASSERT_EQ(chips.size(), 2U) << "what stage " << stage << " sends";
    const uint32_t to = *chips.begin() == stage ? *chips.rbegin() : *chips.begin();
    const bool goes_up = to > stage;
    of_chips_[stage].push_back(to_string(PipelineAction{
        goes_up ? ActionKind::send_forward : ActionKind::send_backward, stage, micro_batch, to}));
    of_chips_[to].push_back(to_string(PipelineAction{
        goes_up ? ActionKind::receive_forward : ActionKind::receive_backward, to, micro_batch, stage}));
  }

  void add_chips(program::VariableId variable, std::set<uint32_t>& chips) const {
    for (const program::MappedBox& mapped : program_.variable(variable).mapping)
      if (mapped.tile < program::kStreaming) chips.insert(machine_.chip_of(mapped.tile));
  }
  std::set<uint32_t> chips_of(program::StepId step) {
    std::set<uint32_t> chips;
    for (const auto& [variable, writes] : uses_.all_of(step)) add_chips(variable, chips);
    return chips;
  }
  /// Of gradients only: the loss, a scalar, may be summed with gradients of other stages.
  std::set<uint32_t> chips_of_sum(const program::Collective& collective) const {
    std::set<uint32_t> chips;
    for (const program::Exchanged& exchanged : collective.variables)
      if (program_.variable(exchanged.whole).elements() > 1) add_chips(exchanged.whole, chips);
    return chips;
  }

  const Lowered& lowered_;
  const machine::Machine& machine_;
  const program::Program& program_;
  program::UsesOfSteps uses_;
  uint32_t sums_ = 0;
  std::vector<std::vector<std::string>> of_chips_;
};

void expect_followed(Graph g, const machine::Machine& machine, uint32_t stages) {
  transform(g, session_transforms(), machine);
  const Placed placed = place_graph(g, machine, {}, 0, bound::Runs::none);
  ASSERT_TRUE(placed.lowered.actions);
  const ActionList& list = *placed.lowered.actions;
  EXPECT_NO_THROW(check(list));
  const ProgramActions found(placed, stages);
  for (uint32_t chip = 0; chip < stages; ++chip) {
    SCOPED_TRACE(fmt::format("chip {}", chip));
    EXPECT_EQ(fmt::format("{}", fmt::join(found.of_chips()[chip], " ")),
              fmt::format("{}", fmt::join(texts_of(list.of_place(chip)), " ")));
  }
}

TEST(ProgramsOfPipelines, HaveTheActionsOfTheirListsInTheirOrder) {
  constexpr uint32_t kStages = 4;
  for (const PipelineKind kind : kAllKinds)
    for (const std::set<uint32_t>& recomputed : {std::set<uint32_t>{}, {0, 2}})
      for (const bool hands_on : {false, true}) {
        if (kind == PipelineKind::sequential && recomputed.empty()) continue;  // a plain loop
        SCOPED_TRACE(fmt::format("{}, {} recomputed, {}", name_of(kind), recomputed.size(), hands_on));
        const Graph g = equal_stages(kStages, 16, {kind, recomputed}, false, {}, hands_on);
        expect_followed(g, chips(kStages).model(), kStages);
      }
}

TEST(ProgramsOfPipelines, SumGradientsWhereTheirListsDo) {
  constexpr uint32_t kStages = 4;
  const machine::Machine machine =
      chips(2 * kStages).with("link_gb_per_second", 1).with("tile_bytes", 1'000'000).model();
  for (const PipelineKind kind :
       {PipelineKind::grouped, PipelineKind::one_forward_one_backward, PipelineKind::zero_bubble})
    for (const bool overlap : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, {}", name_of(kind), overlap));
      const Graph g = equal_stages(kStages, 2 * kStages, {kind}, false, {.replicas = 2, .overlap = overlap});
      expect_followed(g, machine, kStages);
      const ActionList list = Session(g, Machine(machine)).cost().actions.value();
      std::set<uint32_t> stages;
      for (const GradientBucket& bucket : list.links.buckets) {
        EXPECT_GT(bucket.bytes, 0U);
        stages.insert(bucket.stages.begin(), bucket.stages.end());
      }
      EXPECT_EQ(stages.size(), kStages);
      if (overlap) {
        EXPECT_GT(list.links.buckets.size(), 1U);
        if (splits_backward(kind)) continue;  // the first stage lacks passes of the schedule
        // Each sum begins as soon as the last backward pass of its stages has added to it.
        const PipelineSchedule schedule = pipeline_schedule({kind}, kStages, 2 * kStages);
        EXPECT_EQ(texts_of(list.actions), texts_of(actions_of(schedule, list.links).actions));
      } else {
        EXPECT_EQ(list.links.buckets.size(), 1U);
        for (size_t i = 1; i <= kStages; ++i)
          EXPECT_EQ(list.actions.at(list.actions.size() - i).kind, ActionKind::reduce_gradients);
      }
    }
}

TEST(ProgramsOfPipelines, SumDividedGradientsOfEachMicroBatch) {
  const auto is_of_micro_batch = [](const PipelineAction& action) {
    return action.kind == ActionKind::reduce_gradients && !action.bucket;
  };
  for (const PipelineKind kind : {PipelineKind::interleaved, PipelineKind::zero_bubble}) {
    SCOPED_TRACE(name_of(kind));
    TrainingOptions options{.micro_batches = 8, .pipeline = {kind}, .replicas = 2};
    options.shard_gradients_from = 0;
    const ActionList list = Session(network(2, 1, options), chips(4)).cost().actions.value();
    EXPECT_NO_THROW(check(list));
    EXPECT_EQ(list.links.summed_in_passes, (std::set<uint32_t>{0, 1}));
    EXPECT_EQ(std::ranges::count_if(list.actions, is_of_micro_batch), 2 * 8);
  }
}

/// Values that all stages take, a shared parameter, and stages that share chips.
TEST(ProgramsOfPipelines, HaveListsThatCanRun) {
  for (const PipelineKind kind : kAllKinds)
    for (const std::vector<uint32_t>& places :
         {std::vector<uint32_t>{0, 1, 2, 3}, {0, 1, 1, 0}, {0, 1, 0, 1}})
      for (const Machine& machine : {Machine::host(2), chips(places[2] == 2 ? 4 : 2)}) {
        SCOPED_TRACE(fmt::format("{}, stage 2 on part {}, {}", name_of(kind), places[2], machine.name()));
        const Pipeline pipeline{kind, {1, 3}};
        Graph g = network(4, 1, {.micro_batches = 8, .pipeline = pipeline});
        g.place_stages(places);
        const ActionList list = Session(g, machine).cost().actions.value();
        EXPECT_NO_THROW(check(list));
        EXPECT_EQ(list.links.places, places);
        const PipelineSchedule schedule = pipeline_schedule(pipeline, 4, 8);
        // The first stage sends nothing back, and has all its gradients in passes for gradients of weights.
        for (uint32_t s = splits_backward(kind) ? 1 : 0; s < 4; ++s)
          EXPECT_TRUE(passes_of_stage(list, s) == schedule.of_stage(s)) << to_string(list);
      }
  EXPECT_FALSE(Session(equal_stages(2, 4, {}), chips(2)).cost().actions);
}

}  // namespace
}  // namespace tessera::graph
