// Programs on several chips: costs known by hand, clocks of chips, and random programs on random machines.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/error.h>

#include "base/random.h"
#include "compiler/compile.h"
#include "engine/engine.h"
#include "engine/externals.h"
#include "support/bound_arrays.h"
#include "support/number_of.h"
#include "support/random_program.h"
#include "support/reference_interpreter.h"
#include "support/toy_codelets.h"
#include "support/toy_machine.h"

namespace tessera::engine {
namespace {

using program::BoxSeries;
using program::Phase;
using program::Program;
using program::Role;
using program::StepId;
using program::TileId;
using program::VariableId;
using testing::toy_chips;

/// A program of named pieces on tiles, step after step.
class Steps {
 public:
  VariableId variable(TileId tile, uint32_t elements) {
    return program_.add(testing::variable(fmt::format("v{}", program_.variables().size()), Type::f32, 1,
                                          elements, Role::temporary, tile));
  }
  StepId fill(VariableId v) {
    const program::Variable& variable = program_.variable(v);
    return testing::execute(program_, testing::fill_codelet, {v}, {0}, variable.mapping[0].tile);
  }
  StepId copy(VariableId from, VariableId to) {
    const BoxSeries whole = BoxSeries::same(program_.variable(from).whole());
    return program_.copy({"copy", {{from, to, 1, whole, whole, {}, {}, {}}}});
  }
  Program& program() { return program_; }
  Program done(std::vector<StepId> steps) {
    program_.set_main(program_.sequence(std::move(steps)));
    return std::move(program_);
  }

 private:
  Program program_;
};

/// The costs of a run, which must equal those of a dry run, an estimate and the last event of a trace.
Profile account_of(const Program& program, const machine::Machine& machine) {
  const Engine engine(compiler::compile(program, machine));
  std::vector<TraceEvent> trace;
  const Profile run = engine.run({}, {.trace = &trace});
  for (size_t chip = 0; chip < run.chips.size(); ++chip)
    EXPECT_NEAR(trace.back().chips.at(chip).end, run.chips[chip].total(), 1e-9 * run.cycles.total());
  const Profile dry = engine.run({}, {.dry = true});
  EXPECT_EQ(dry.cycles.at, run.cycles.at);
  EXPECT_EQ(dry.chips.size(), run.chips.size());
  for (size_t chip = 0; chip < run.chips.size(); ++chip) EXPECT_EQ(dry.chips[chip].at, run.chips[chip].at);
  const compiler::Estimate estimate = compiler::estimate(program, machine);
  EXPECT_NEAR(estimate.cycles.total(), run.cycles.total(), 1e-9 * run.cycles.total());
  EXPECT_EQ(estimate.run.chips.size(), run.chips.size());
  EXPECT_EQ(estimate.run.links.size(), run.links.size());
  for (size_t link = 0; link < run.links.size(); ++link)
    EXPECT_DOUBLE_EQ(estimate.run.links[link].bytes, run.links[link].bytes);
  return run;
}

TEST(Chips, OneCopyOverOneLink) {
  Steps s;
  const VariableId a = s.variable(0, 16), b = s.variable(2, 16);
  const Profile run = account_of(s.done({s.fill(a), s.copy(a, b)}), toy_chips(2, 2));
  EXPECT_EQ(run.cycles[Phase::compute], 17);
  EXPECT_EQ(run.cycles[Phase::exchange], 64 / 2 + 5 + 20);
  EXPECT_EQ(run.cycles[Phase::sync], 50);
  ASSERT_EQ(run.chips.size(), 2u);
  EXPECT_EQ(run.chips[0].total(), 17 + 57 + 50);
  EXPECT_EQ(run.chips[1].total(), run.chips[0].total());
  EXPECT_EQ(run.chips[1][Phase::sync], 17 + 50);  // waiting for chip 0
  ASSERT_EQ(run.links.size(), 1u);
  EXPECT_EQ(run.links[0].bytes, 64);
}

TEST(Chips, ARouteOfThreeChips) {
  Steps s;
  const VariableId a = s.variable(0, 16), b = s.variable(3, 16);
  const Profile run = account_of(s.done({s.fill(a), s.copy(a, b)}), toy_chips(4, 1));
  EXPECT_EQ(run.cycles.total(), 17 + 50 + 64 / 2 + 2 * 5 + 20);
  EXPECT_EQ(run.chips[1].total(), 0);
  EXPECT_EQ(run.chips[2].total(), 0);  // data passes through it
  EXPECT_EQ(run.links.size(), 2u);
}

TEST(Chips, IndependentWorkRunsAtOnce) {
  Steps s;
  const VariableId a = s.variable(0, 99), b = s.variable(2, 199), c = s.variable(1, 99);
  const Profile run = account_of(s.done({s.fill(a), s.fill(b), s.copy(a, c), s.fill(b)}), toy_chips(2, 2));
  EXPECT_EQ(run.chips[0].total(), 100 + 10 + 20 + 99);  // with an exchange of its own
  EXPECT_EQ(run.chips[1].total(), 200 + 200);
  EXPECT_EQ(run.cycles.total(), 400);
  EXPECT_TRUE(run.links.empty());
}

TEST(Chips, WaitForThoseWithWhichTheyExchange) {
  Steps s;
  const VariableId a = s.variable(0, 99), b = s.variable(1, 299), c = s.variable(2, 499),
                   d = s.variable(1, 99);
  // Chip 0 sends to chip 1, which is busy until 300; chip 2 goes on.
  const Profile run = account_of(s.done({s.fill(a), s.fill(b), s.fill(c), s.copy(a, d), s.fill(a)}),
                                 toy_chips(3, 1, machine::Topology::all_to_all));
  const double exchange = 50 + 99 * 4 / 2 + 5 + 20;
  EXPECT_EQ(run.chips[0].total(), 300 + exchange + 100);
  EXPECT_EQ(run.chips[0][Phase::sync], 200 + 50);
  EXPECT_EQ(run.chips[1].total(), 300 + exchange);
  EXPECT_EQ(run.chips[2].total(), 500);
}

TEST(Chips, OneSetOnSeveralChipsTiesNone) {
  Steps s;
  const VariableId a = s.variable(0, 99), b = s.variable(1, 199);
  program::ComputeSet both{
      "both",
      Phase::compute,
      {testing::vertex(testing::fill_codelet, 0, {testing::field(a, {0, 1, 0, 99})}, {0}),
       testing::vertex(testing::fill_codelet, 1, {testing::field(b, {0, 1, 0, 199})}, {0})}};
  const StepId step = s.program().execute(std::move(both));
  machine::Machine machine = toy_chips(2, 1);
  machine.superstep_cycles = 7;
  const Engine engine(compiler::compile(s.done({step, s.fill(a)}), machine));
  const Profile run = engine.run({});
  EXPECT_EQ(run.chips[0].total(), 100 + 7 + 100 + 7);
  EXPECT_EQ(run.chips[1].total(), 200 + 7);
  EXPECT_EQ(run.sets[0].cycles.total(), 207);
}

TEST(Chips, LoopsKeepTheirClocks) {
  // A pipeline: each pass chip 0 works 100, sends to chip 1, which works 150.
  Steps s;
  const VariableId a = s.variable(0, 99), b = s.variable(1, 99), c = s.variable(1, 149);
  const StepId body = s.program().sequence({s.fill(a), s.copy(a, b), s.fill(c)});
  const StepId loop = s.program().repeat(1000, body);
  const Profile run = account_of(s.done({loop}), toy_chips(2, 1));
  const double exchange = 50 + 99 * 4 / 2 + 5 + 20;
  EXPECT_NEAR(run.chips[1].total(), 100 + 1000 * (exchange + 150), 1e-6);
  EXPECT_NEAR(run.links.at(0).bytes, 1000 * 99 * 4, 1e-6);
}

TEST(Chips, LoopsMayLeaveChipsBehind) {
  for (const bool meet_at_the_end : {false, true}) {
    Steps s;
    const VariableId a = s.variable(0, 99), b = s.variable(1, 149), c = s.variable(1, 99);
    std::vector<StepId> steps = {s.program().repeat(1000, s.program().sequence({s.fill(a), s.fill(b)})),
                                 s.program().repeat(500, s.fill(b))};
    if (meet_at_the_end) steps.push_back(s.copy(a, c));
    const Profile run = account_of(s.done(std::move(steps)), toy_chips(2, 1));
    EXPECT_NEAR(run.chips[0].total(), meet_at_the_end ? run.chips[1].total() : 1000 * 100, 1e-6);
    EXPECT_GE(run.chips[1].total(), 1500 * 150);
  }
}

TEST(Chips, LoopsMayBeginOutOfStep) {
  // Chip 0 starts late by as much as chip 1 works in a pass: the first pass differs from all others.
  Steps s;
  const VariableId late = s.variable(0, 149), a = s.variable(0, 99), b = s.variable(1, 99),
                   c = s.variable(1, 149);
  const StepId loop = s.program().repeat(1000, s.program().sequence({s.fill(a), s.copy(a, b), s.fill(c)}));
  const Profile run = account_of(s.done({s.fill(late), loop}), toy_chips(2, 1));
  const double exchange = 50 + 99 * 4 / 2 + 5 + 20;
  EXPECT_NEAR(run.chips[1].total(), 150 + 100 + 1000 * (exchange + 150), 1e-6);
}

TEST(Chips, TracesSayWhenEachChipWasBusy) {
  Steps s;
  const VariableId a = s.variable(0, 99), b = s.variable(1, 49), c = s.variable(1, 99);
  const Engine engine(compiler::compile(s.done({s.fill(a), s.fill(b), s.copy(a, c)}), toy_chips(2, 1)));
  std::vector<TraceEvent> trace;
  engine.run({}, {.trace = &trace});
  ASSERT_EQ(trace.size(), 3u);
  EXPECT_EQ(trace[1].chips.at(1).begin, 0);  // at the same time as chip 0
  EXPECT_EQ(trace[1].chips.at(1).end, 50);
  EXPECT_EQ(trace[1].chips.at(0).end, trace[1].chips.at(0).begin);
  EXPECT_EQ(trace[2].chips.at(1).begin, 50);
  EXPECT_EQ(trace[2].chips.at(0).begin, 100);
  EXPECT_EQ(trace[2].chips.at(0).end, trace[2].chips.at(1).end);
}

TEST(Chips, MemoryIsCountedByChip) {
  Steps s;
  const VariableId a = s.variable(0, 100), b = s.variable(2, 300);
  const machine::Machine machine = toy_chips(2, 2);
  const auto executable = compiler::compile(s.done({s.fill(a), s.fill(b)}), machine);
  const std::vector<compiler::TileMemory> chips = compiler::memory_by_chip(executable->memory, machine);
  ASSERT_EQ(chips.size(), 2u);
  EXPECT_EQ(chips[0].total() + chips[1].total(), executable->memory.total_bytes);
  EXPECT_EQ(chips[1].end, executable->memory.max_tile_bytes);
  EXPECT_LT(chips[0].end, chips[1].end);
}

/// Machines of one to four chips, with any rates.
machine::Machine random_chips(uint64_t seed) {
  base::RandomSequence random(base::RandomStream(seed, 2));
  const machine::Topology topologies[] = {machine::Topology::ladder, machine::Topology::torus,
                                          machine::Topology::all_to_all};
  machine::Machine m = toy_chips(1, 1);
  m.topology = topologies[random.below(3)];
  m.chips = m.topology == machine::Topology::ladder ? 2 * (1 + random.below(2)) : 1 + random.below(4);
  m.torus_width = m.chips % 2 == 0 ? 1 + random.below(2) : 1;
  m.chip_tiles = 1 + random.below(4);
  m.tiles = m.chips * m.chip_tiles;
  m.link_bytes_per_second = 1e9 * (1 + random.below(16));
  m.link_latency_seconds = 1e-9 * random.below(100);
  m.chip_sync_cycles = random.below(1000);
  m.superstep_cycles = random.below(50);
  m.paired_exchange_factor = 1 + random.below(2);
  m.gather_exchange_share = 0.5;
  return m;
}

TEST(RandomChips, GiveTheBitsOfTheReferenceInterpreterAndTheSameAccountDry) {
  uint32_t estimated = 0, tied = 0, ahead = 0;
  const uint64_t programs = test::number_of_cases(150, 400);
  for (uint64_t seed = 0; seed < programs; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const machine::Machine machine = random_chips(seed);
    const Program program = testing::random_program(seed, {machine.tiles, false});
    testing::FlatVariables expected = testing::flat_variables(program);
    fill_externals(program, seed, expected);
    testing::BoundArrays arrays(program, expected);
    const Engine engine(compiler::compile(program, machine));
    if (!engine.executable().memory.fits()) continue;
    const Profile run = engine.run(arrays.bindings(), {.threads = 1 + static_cast<uint32_t>(seed % 2)});
    testing::interpret(program, expected);
    expect_equal(program, arrays.flat(), expected);
    ASSERT_EQ(run.chips.size(), machine.chips == 1 ? 0 : machine.chips);
    double last = 0, sum = 0;
    for (const program::PhaseTimes& chip : run.chips) last = std::max(last, chip.total());
    for (const auto* steps : {&run.sets, &run.copies})
      for (const StepProfile& step : *steps) sum += step.cycles.total();
    if (machine.chips > 1) {
      ASSERT_DOUBLE_EQ(run.cycles.total(), last);
      ASSERT_LE(last, sum * (1 + 1e-9));  // steps overlap, but none takes longer than alone
      ahead += last < sum * (1 - 1e-9);
      tied += !run.links.empty();
    }
    try {
      const Profile dry = engine.run({}, {.dry = true});
      ASSERT_EQ(dry.cycles.at, run.cycles.at);
      ASSERT_EQ(dry.links.size(), run.links.size());
      ++estimated;
      const double cycles = compiler::estimate(program, machine).cycles.total();
      ASSERT_NEAR(cycles, run.cycles.total(), 1e-9 * cycles);
    } catch (const Error&) {
      continue;  // control, or costs, depend on what only a run knows
    }
  }
  EXPECT_GT(estimated, programs / 6);
  EXPECT_GT(tied, programs / 6);
  EXPECT_GT(ahead, programs / 12);
}

}  // namespace
}  // namespace tessera::engine
