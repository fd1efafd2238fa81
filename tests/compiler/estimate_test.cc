// Estimates: the costs of a compiled program, before it is compiled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/error.h>

#include "compiler/compile.h"
#include "support/error_of.h"
#include "support/number_of.h"
#include "support/random_program.h"
#include "support/toy_codelets.h"
#include "support/toy_machine.h"

namespace tessera::compiler {
namespace {

using program::PhaseTimes;
using program::Program;
using program::Role;
using program::StepId;
using program::VariableId;
using ::testing::HasSubstr;
using testing::variable;

struct Counted {
  Program p;
  VariableId counter = p.add(variable("counter", Type::u32, 1, 1, Role::temporary, 0));
  VariableId flag = p.add(variable("flag", Type::u32, 1, 1, Role::temporary, 0));
  VariableId t = p.add(variable("t", Type::f32, 4, 8, Role::inout, 0));

  StepId scale() { return testing::execute(p, testing::scale_codelet, {t}, {int64_t{2}}, 1); }
  StepId below(int64_t limit) {
    return testing::execute(p, testing::below_codelet, {counter, flag}, {limit});
  }
  Estimate estimate(StepId main, const TripCounts& counts = {}) {
    p.set_main(main);
    return compiler::estimate(p, testing::toy_machine(3), counts);
  }
};

std::string error_of(Counted& c, StepId main) {
  return test::error_of([&] { c.estimate(main); });
}

TEST(Estimate, HasTheBytesOfTheAccount) {
  uint32_t compared = 0;
  const uint64_t programs = test::number_of_cases(100, 300);
  for (uint64_t seed = 0; seed < programs; ++seed) {
    SCOPED_TRACE(seed);
    for (const machine::Machine& machine : {testing::toy_machine(3), testing::toy_machine_with_regions(5),
                                            testing::toy_machine(7, 65536, 65536), testing::toy_host(2)}) {
      const Program program = testing::random_program(seed, {machine.tiles, machine.has_shared_space()});
      Estimate estimated;
      try {
        estimated = estimate(program, machine, {.of_loops = 2, .contents = {}});
      } catch (const Error& e) {
        ASSERT_THAT(e.what(), HasSubstr("what it does depends on"));  // it has an If
        continue;
      }
      ++compared;
      const auto e = compile(program, machine);
      ASSERT_EQ(estimated.memory.max_tile_bytes, e->memory.max_tile_bytes);
      ASSERT_EQ(estimated.memory.total, e->memory.total);
      ASSERT_EQ(estimated.memory.overflow_bytes, e->memory.overflow_bytes);
      for (size_t t = 0; t < e->memory.tiles.size(); ++t)
        ASSERT_EQ(estimated.memory.tiles[t].bytes, e->memory.tiles[t].bytes);
    }
  }
  EXPECT_GT(compared, programs / 4);
}

TEST(Estimate, HasTheSameCyclesWithoutMemory) {
  uint32_t compared = 0;
  const uint64_t programs = test::number_of_cases(80, 200);
  for (uint64_t seed = 0; seed < programs; ++seed) {
    SCOPED_TRACE(seed);
    for (const machine::Machine& machine :
         {testing::toy_machine(3), testing::toy_chips(2, 2), testing::toy_host(2)}) {
      const Program program = testing::random_program(seed, {machine.tiles, machine.has_shared_space()});
      try {
        const PhaseTimes cycles = estimate(program, machine).cycles;
        EXPECT_EQ(estimate_cycles(program, machine).at, cycles.at);
        ++compared;
      } catch (const Error&) {
        continue;  // control flow depends on what only a run knows
      }
    }
  }
  EXPECT_GT(compared, programs / 5);
}

TEST(Estimate, HasNoMemoryIfARunTakesTooLong) {
  Counted c;
  c.p.set_main(c.p.sequence({c.scale(), c.p.repeat(3, c.scale())}));
  const machine::Machine machine = testing::toy_machine(3);
  const Estimate all = estimate(c.p, machine), within = estimate(c.p, machine, {}, all.cycles.total()),
                 beyond = estimate(c.p, machine, {}, 0.99 * all.cycles.total());
  EXPECT_TRUE(all.has_memory && within.has_memory);
  EXPECT_EQ(within.memory.total, all.memory.total);
  EXPECT_FALSE(beyond.has_memory);
  EXPECT_TRUE(beyond.memory.tiles.empty());
  EXPECT_EQ(beyond.cycles.at, all.cycles.at);
}

TEST(Estimate, AddsUpTheCyclesOfSetsAsOftenAsTheyRun) {
  Counted c;
  const StepId body = c.scale();
  const auto function = c.p.add(program::Function{"f", c.p.repeat(5, body)});
  const auto call = [&] { return c.p.add(program::Step{program::Call{function}}); };
  const Estimate estimated = c.estimate(c.p.sequence({body, c.p.repeat(3, call()), call()}));
  const auto e = compile(c.p, testing::toy_machine(3));
  for (size_t phase = 0; phase < program::kPhases; ++phase)
    EXPECT_EQ(estimated.cycles.at[phase], 21 * e->set_cycles[0].at[phase]);
}

TEST(Estimate, CountsLoopsAsItIsTold) {
  Counted c;
  const StepId test = c.below(4);
  const StepId body = c.scale();
  const Estimate estimated =
      c.estimate(c.p.add(program::Step{program::While{test, c.flag, body}}), {.of_loops = 6, .contents = {}});
  const auto e = compile(c.p, testing::toy_machine(3));
  PhaseTimes expected = e->set_cycles[0].scaled(7);
  expected += e->set_cycles[1].scaled(6);
  EXPECT_EQ(estimated.cycles.at, expected.at);
}

/// Others cost the same in every run.
TEST(Estimate, LeavesSetsThatReadIntegersToTheRun) {
  Counted c;
  const StepId test = c.below(4);
  const StepId body = c.scale();
  c.p.set_main(c.p.add(program::Step{program::While{test, c.flag, body}}));
  EXPECT_EQ(compile(c.p, testing::toy_machine(3))->costed_at_run, (std::vector<bool>{true, false}));
  EXPECT_EQ(compile(c.p, testing::toy_host(2))->costed_at_run, (std::vector<bool>{false, false}));
}

/// Walking the loop would take too long.
TEST(Estimate, WalksALoopOnceWhoseCostsReadNoIntegers) {
  constexpr uint32_t kPasses = 4'000'000'000;
  Counted c;
  const StepId add = testing::execute(c.p, testing::add_codelet, {c.counter, c.counter, c.flag});
  c.p.set_main(c.p.repeat(kPasses, add, c.counter));
  for (const machine::Machine& machine : {testing::toy_machine(3), testing::toy_chips(2, 2)}) {
    const auto e = compile(c.p, machine);
    EXPECT_EQ(e->costed_at_run, (std::vector<bool>{false}));
    EXPECT_FALSE(e->cycles_vary);
    const RunAccount account = cycles_of_run(*e);
    EXPECT_EQ(account.sets[0].times, kPasses);
    EXPECT_DOUBLE_EQ(account.cycles.total(), kPasses * e->set_cycles[0].total());
  }
}

/// An estimate is never too low.
TEST(Estimate, RefusesControlFlowThatItIsNotToldAbout) {
  Counted loop;
  const StepId test = loop.below(4);
  const StepId body = loop.scale();
  EXPECT_THAT(error_of(loop, loop.p.add(program::Step{program::While{test, loop.flag, body}})),
              HasSubstr("needs the trip count of the loop that 'flag' ends"));
  Counted branch;
  const StepId then = branch.scale();
  EXPECT_THAT(error_of(branch, branch.p.add(program::Step{program::If{branch.flag, then, program::kNoStep}})),
              HasSubstr("what it does depends on 'flag'"));
}

TEST(Estimate, CountsNothingOfStepsThatNeverRun) {
  Counted c;
  const StepId once = c.scale(), never = c.scale();
  const StepId branch = c.p.add(program::Step{program::If{c.flag, never, program::kNoStep}});
  const Estimate estimated = c.estimate(c.p.sequence({once, c.p.repeat(0, branch), program::kNoStep}));
  EXPECT_EQ(estimated.cycles.at, compile(c.p, testing::toy_machine(3))->set_cycles[0].at);
}

TEST(Estimate, AsksForMetadataOfEachTrip) {
  Counted c;
  const StepId test = c.below(4);
  std::vector<uint32_t> trips;
  uint32_t value = 3;
  TripCounts counts;
  counts.of_loops = 3;
  counts.contents = [&](VariableId variable, const program::Box&, uint32_t trip) {
    if (variable == c.counter) trips.push_back(trip);
    return reinterpret_cast<const std::byte*>(&value);
  };
  const StepId increment = testing::execute(c.p, testing::increment_codelet, {c.counter}, {int64_t{1}});
  c.estimate(c.p.add(program::Step{program::While{test, c.flag, increment}}), counts);
  EXPECT_EQ(trips, (std::vector<uint32_t>{0, 1, 2, 3}));  // the test, once for all; then the body
}

}  // namespace
}  // namespace tessera::compiler
