// Copies from streaming memory while tiles do other work: results, and times known by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "engine/engine.h"
#include "program/program.h"
#include "support/toy_codelets.h"
#include "support/toy_machine.h"

namespace tessera::engine {
namespace {

using program::BoxSeries;
using program::Phase;
using program::Program;
using program::Role;
using program::StepId;
using program::VariableId;
using ::testing::HasSubstr;
using testing::toy_chips;

program::CopySet all_of(const Program& program, VariableId from, VariableId to) {
  const BoxSeries all = BoxSeries::same(program.variable(from).whole());
  return {"stream", {{from, to, 1, all, all, {}, {}, {}}}};
}

struct Built {
  Program program;
  VariableId taken = 0, other = 0;
};

/// A tile stores its input, clears it and reads it back, and works on other data meanwhile or afterwards.
Built with_work(uint32_t steps, bool is_beside) {
  constexpr uint32_t kElements = 100;
  Built b;
  Program& p = b.program;
  const auto add = [&](const char* name, Role role, bool streaming = false) {
    program::Variable variable = testing::variable(name, Type::f32, 1, kElements, role, 0);
    variable.streaming = streaming;
    return p.add(std::move(variable));
  };
  b.taken = add("taken", Role::inout);
  b.other = add("other", Role::inout);
  const VariableId kept = add("kept", Role::temporary, true), scratch = add("scratch", Role::temporary);
  const StepId store = p.copy(all_of(p, b.taken, kept));
  const StepId clear = testing::execute(p, testing::fill_codelet, {b.taken}, {0});
  std::vector<StepId> work = {testing::execute(p, testing::fill_codelet, {scratch}, {1})};
  for (uint32_t i = 0; i < steps; ++i)
    work.push_back(testing::execute(p, testing::accumulate_codelet, {scratch, b.other}));
  const StepId all = p.sequence(std::move(work));
  const program::CopySetId fetched = p.add(all_of(p, kept, b.taken));
  const StepId fetch = p.add(program::Step{program::Copy{fetched, is_beside ? all : program::kNoStep}});
  std::vector<StepId> main = {store, clear, fetch};
  if (!is_beside) main.push_back(all);
  p.set_main(p.sequence(std::move(main)));
  return b;
}

TEST(StreamingMemory, IsReadWhileTilesCompute) {
  const machine::Machine machine = testing::toy_machine(1);
  for (const uint32_t steps : {0U, 1U, 3U, 50U}) {
    SCOPED_TRACE(steps);
    std::vector<std::vector<float>> results;
    std::vector<Profile> runs;
    double fixed = 0, hidden = 0;
    for (const bool is_beside : {false, true}) {
      const Built b = with_work(steps, is_beside);
      const Engine engine(compiler::compile(b.program, machine));
      std::vector<float> taken(100), other(100, 0.5F);
      for (size_t i = 0; i < taken.size(); ++i) taken[i] = static_cast<float>(i) - 30;
      const std::vector<float> given = taken;
      runs.push_back(engine.run(
          std::vector<Binding>{{b.taken, taken.data(), 100, 1, 100}, {b.other, other.data(), 100, 1, 100}}));
      EXPECT_EQ(taken, given);
      results.push_back(std::move(other));
      EXPECT_EQ(engine.run({}, {.dry = true}).cycles.at, runs.back().cycles.at);
      EXPECT_EQ(compiler::estimate(b.program, machine).cycles.at, runs.back().cycles.at);
      const std::vector<compiler::Exchange>& copies = engine.executable().copies;
      const compiler::ExchangeCost& fetch = copies.at(1).cost;
      fixed = copies.at(0).cost.cycles.total() + runs.back().sets.at(0).cycles.total() + fetch.cycles.total();
      double of_steps = 0;
      for (const auto* profiles : {&runs.back().sets, &runs.back().copies})
        for (const StepProfile& step : *profiles) of_steps += step.cycles.total();
      EXPECT_NEAR(of_steps, runs.back().cycles.total(), 1e-9 * of_steps);
      hidden = fetch.cycles[Phase::exchange] - machine.exchange_cycles - fetch.tiles.most;
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_GT(hidden, 0);
    const double after = runs[0].cycles.total(), beside = runs[1].cycles.total(), work = after - fixed;
    EXPECT_NEAR(beside, after - std::min(work, hidden), 1e-9 * after);
    EXPECT_LT(beside, after);
  }
}

TEST(StreamingMemory, KeepsRoomForWhatIsUnderWay) {
  const auto bytes = [](bool is_beside) {
    Program p;
    const auto add = [&](const char* name, Role role, bool streaming) {
      program::Variable variable = testing::variable(name, Type::f32, 1, 100, role, 0);
      variable.streaming = streaming;
      return p.add(std::move(variable));
    };
    const VariableId kept = add("kept", Role::state, true), taken = add("taken", Role::temporary, false);
    const VariableId scratch = add("scratch", Role::temporary, false), sum = add("sum", Role::inout, false);
    const StepId work = p.sequence({testing::execute(p, testing::fill_codelet, {scratch}, {1}),
                                    testing::execute(p, testing::accumulate_codelet, {scratch, sum})});
    const StepId use = testing::execute(p, testing::accumulate_codelet, {taken, sum});
    const program::CopySetId fetched = p.add(all_of(p, kept, taken));
    const StepId fetch = p.add(program::Step{program::Copy{fetched, is_beside ? work : program::kNoStep}});
    p.set_main(is_beside ? p.sequence({fetch, use}) : p.sequence({work, fetch, use}));
    return compiler::estimate(p, testing::toy_machine(1)).memory.max_tile_bytes;
  };
  EXPECT_GE(bytes(true), bytes(false) + 100 * sizeof(float));
}

TEST(StreamingMemory, IsSharedInLoopsAsOutsideOfThem) {
  // Only the first of the small copies has to wait until the large one frees the memory.
  for (const uint32_t chips : {1U, 2U}) {
    SCOPED_TRACE(chips);
    const auto cycles = [&](bool is_loop, bool has_large) {
      constexpr uint32_t kPasses = 5;
      Program p;
      const auto variable = [&](const std::string& name, uint32_t elements, bool streaming) {
        program::Variable added{
            name, Type::f32, chips, elements, Role::state, program::map_rows_to_tiles(chips, elements), {}};
        added.streaming = streaming;
        return p.add(std::move(added));
      };
      const auto fetch = [&](const std::string& name, uint32_t elements) {
        const VariableId kept = variable(name + ".kept", elements, true);
        return p.add(all_of(p, kept, variable(name, elements, false)));
      };
      const program::CopySetId large = fetch("large", 1000), small = fetch("small", 20);
      const VariableId scratch = p.add(testing::variable("scratch", Type::f32, 1, 50, Role::temporary, 0));
      const StepId work = testing::execute(p, testing::fill_codelet, {scratch}, {1});
      const StepId pass = p.sequence(
          {p.add(program::Step{program::Copy{small, work}}), p.add(program::Step{program::Copy{small}})});
      const StepId passes =
          is_loop ? p.repeat(kPasses, pass) : p.sequence(std::vector<StepId>(kPasses, pass));
      p.set_main(has_large ? p.add(program::Step{program::Copy{large, passes}}) : passes);
      const machine::Machine machine = chips == 1 ? testing::toy_machine(1) : toy_chips(chips, 1);
      return compiler::estimate(p, machine).cycles.total();
    };
    for (const bool has_large : {false, true})
      EXPECT_NEAR(cycles(true, has_large), cycles(false, has_large), 1e-6);
  }
}

TEST(StreamingMemory, IsPrintedWithWhatRunsMeanwhile) {
  EXPECT_THAT(to_string(with_work(0, true).program), HasSubstr("  beside it\n    execute fill"));
}

}  // namespace
}  // namespace tessera::engine
