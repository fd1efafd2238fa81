#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/error.h>

#include <cmath>
#include <cstdlib>

#include "compiler/compile.h"
#include "engine/engine.h"
#include "engine/externals.h"
#include "engine/session.h"
#include "support/bound_arrays.h"
#include "support/error_of.h"
#include "support/number_of.h"
#include "support/random_machine.h"
#include "support/random_program.h"
#include "support/reference_interpreter.h"
#include "support/toy_machine.h"

namespace tessera::engine {
namespace {

using testing::BoundArrays;
using testing::FlatVariables;

/// State as a session has it.
FlatVariables state_of(const Session& session) {
  const program::Program& program = *session.executable().program;
  FlatVariables state(program.variables().size());
  for (program::VariableId v = 0; v < state.size(); ++v) {
    const program::Variable& variable = program.variable(v);
    if (variable.role != program::Role::state) continue;
    state[v].resize(variable.bytes());
    session.read(variable.name,
                 {state[v].data(), variable.type, variable.rows, variable.cols, variable.cols, 1});
  }
  return state;
}

/// Runs that follow one another in a session; the first one leaves `first`.
void expect_state_to_stay(const Engine& engine, const FlatVariables& initial, const FlatVariables& first) {
  const program::Program& program = *engine.executable().program;
  Session session(std::make_shared<const compiler::Executable>(engine.executable()));
  BoundArrays arrays(program, initial);
  FlatVariables expected = first;
  for (uint32_t run = 0; run < 3; ++run) {
    SCOPED_TRACE(run);
    if (run != 0) testing::interpret(program, expected);
    session.run(arrays.bindings(), {.threads = 1 + run % 2});
    expect_equal(program, arrays.flat(), expected);
    expect_equal(program, state_of(session), expected, program::Role::state);
  }
  session.reset();
  expect_equal(program, state_of(session), testing::flat_variables(program), program::Role::state);
}

/// Compares the external variables after the program with the reference interpreter; and state, from run to
/// run.
void expect_like_oracle(uint64_t seed, const machine::Machine& machine,
                        const std::vector<uint32_t>& threads) {
  SCOPED_TRACE(fmt::format("seed {}", seed));
  const program::Program program = testing::random_program(seed, {machine.tiles, machine.has_shared_space()});
  FlatVariables expected = testing::flat_variables(program);
  fill_externals(program, seed, expected);
  const FlatVariables initial = expected;
  ASSERT_NO_THROW(testing::interpret(program, expected));

  const Engine engine(compiler::compile(program, machine));
  for (uint32_t t : threads) {
    BoundArrays arrays(program, initial);
    const Profile profile = engine.run(arrays.bindings(), {.threads = t});
    SCOPED_TRACE(fmt::format("{} threads", t));
    expect_equal(program, arrays.flat(), expected);
    ASSERT_GT(profile.seconds, 0);
  }
  expect_state_to_stay(engine, initial, expected);
}

#ifdef TESSERA_SANITIZED
constexpr uint64_t kFew = 40;  // the bits of the others are compared without sanitizers
#else
constexpr uint64_t kFew = 120;
#endif

class RandomPrograms : public ::testing::TestWithParam<machine::Machine> {};

TEST_P(RandomPrograms, GiveTheBitsOfTheReferenceInterpreterAtAnyThreadCount) {
  if (const char* seed = std::getenv("TESSERA_TEST_SEED"))
    return expect_like_oracle(std::strtoull(seed, nullptr, 10), GetParam(), {1, 2, 4});
  for (uint64_t seed = 0; seed < test::number_of_cases(kFew, 500); ++seed) {
    expect_like_oracle(seed, GetParam(),
                       seed % 2 == 0 ? std::vector<uint32_t>{1, 2} : std::vector<uint32_t>{3, 1});
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Machines, RandomPrograms,
    ::testing::Values(testing::toy_machine(1), testing::toy_machine(2), testing::toy_machine(3),
                      testing::toy_machine(5), testing::toy_machine(7),
                      testing::toy_machine(5, 64 << 10, 1 << 20), testing::toy_machine_with_regions(1),
                      testing::toy_machine_with_regions(4), testing::toy_machine_with_regions(13, 48 << 10),
                      testing::toy_host(1), testing::toy_host(2), testing::toy_host(4)),
    [](const auto& param) {
      const bool shared = param.param.name == "toy" && param.param.has_shared_space();
      return fmt::format("{}{}{}", param.param.name, param.param.tiles,
                         shared                                 ? "shared"
                         : param.param.has_interleaved_region() ? "regions"
                                                                : "");
    });

/// Compares the costs of a full run and a dry run. False if control depends on payload.
bool estimates_as_it_runs(const Engine& engine, const Profile& run) {
  try {
    const Profile dry = engine.run({}, {.dry = true});
    EXPECT_EQ(dry.cycles.at, run.cycles.at);
    EXPECT_EQ(dry.supersteps, run.supersteps);
    for (size_t s = 0; s < run.sets.size(); ++s) EXPECT_EQ(dry.sets[s].times, run.sets[s].times);
    return true;
  } catch (const Error& e) {
    EXPECT_TRUE(test::says(e.what(), "a dry run cannot follow the program"));
    return false;
  }
}

TEST(RandomMachines, RunWhatFitsAndSayWhatDoesNot) {
  uint32_t fitting = 0;
  uint32_t overflowing = 0;
  uint32_t estimated = 0;
  const uint64_t programs = test::number_of_cases(200, 600);
  for (uint64_t seed = 0; seed < programs; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const machine::Machine machine = testing::random_machine(seed);
    const program::Program program = testing::random_program(seed, {machine.tiles, false});
    FlatVariables expected = testing::flat_variables(program);
    fill_externals(program, seed, expected);
    BoundArrays arrays(program, expected);
    const Engine engine(compiler::compile(program, machine));
    const compiler::MemoryReport& memory = engine.executable().memory;
    for (const compiler::TileMemory& tile : memory.tiles) ASSERT_LE(tile.total(), tile.end);
    if (!memory.fits()) {
      ++overflowing;
      const std::string why = fmt::format("tile {} needs {} bytes and has {}; it holds ", memory.fullest_tile,
                                          machine.tile_bytes + memory.overflow_bytes, machine.tile_bytes);
      ASSERT_TRUE(test::says(test::error_of([&] { engine.run(arrays.bindings()); }), why));
      continue;
    }
    ++fitting;
    ASSERT_LE(memory.max_tile_bytes, machine.tile_bytes);
    const Profile profile = engine.run(arrays.bindings(), {.threads = 2});
    ASSERT_TRUE(std::isfinite(profile.cycles.total()));
    estimated += estimates_as_it_runs(engine, profile);
    testing::interpret(program, expected);
    expect_equal(program, arrays.flat(), expected);
  }
  EXPECT_GT(fitting, programs / 5);
  EXPECT_GT(overflowing, programs / 8);
  EXPECT_GT(estimated, programs / 8);
}

TEST(Trace, HasEverySuperstepInItsOrder) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    const machine::Machine machine = testing::toy_machine_with_regions(4);
    const program::Program program = testing::random_program(seed, {machine.tiles, false});
    FlatVariables variables = testing::flat_variables(program);
    fill_externals(program, seed, variables);
    BoundArrays arrays(program, variables);
    std::vector<TraceEvent> trace;
    const Engine engine(compiler::compile(program, machine));
    const Profile profile = engine.run(arrays.bindings(), {.threads = 1, .trace = &trace});
    program::PhaseTimes cycles;
    uint64_t supersteps = 0;
    double last = 0;
    for (const TraceEvent& event : trace) {
      cycles += event.cycles;
      supersteps += !event.is_copy();
      EXPECT_GE(event.start, last);
      EXPECT_GE(event.seconds.total(), 0);
      last = event.start;
    }
    EXPECT_EQ(supersteps, profile.supersteps);
    EXPECT_NEAR(cycles.total(), profile.cycles.total(), 1e-12 * cycles.total());
    EXPECT_LE(last, profile.seconds);
  }
}

TEST(Trace, OfADryRunHasTheEventsOfARun) {
  uint32_t compared = 0, counted_ahead = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const machine::Machine machine = testing::toy_machine_with_regions(4);
    const program::Program program = testing::random_program(seed, {machine.tiles, false});
    FlatVariables variables = testing::flat_variables(program);
    fill_externals(program, seed, variables);
    BoundArrays arrays(program, variables);
    const auto executable = compiler::compile(program, machine);
    const Engine engine(executable);
    Session session(executable);
    std::vector<TraceEvent> full, of_engine, of_session;
    try {
      engine.run({}, {.dry = true, .trace = &of_engine});
      session.run({}, {.dry = true, .trace = &of_session});
    } catch (const Error&) {
      continue;  // control depends on what only a run knows
    }
    engine.run(arrays.bindings(), {.threads = 1, .trace = &full});
    for (const std::vector<TraceEvent>* dry : {&of_engine, &of_session}) {
      ASSERT_EQ(dry->size(), full.size());
      for (size_t i = 0; i < full.size(); ++i) {
        EXPECT_EQ((*dry)[i].kind, full[i].kind);
        EXPECT_EQ((*dry)[i].id, full[i].id);
        if (!executable->cycles_vary) {
          EXPECT_EQ((*dry)[i].cycles.at, full[i].cycles.at);
        }
      }
    }
    ++compared;
    counted_ahead += !executable->cycles_vary;
  }
  EXPECT_GT(compared, 30u);
  EXPECT_GT(counted_ahead, 5u);
}

}  // namespace
}  // namespace tessera::engine
