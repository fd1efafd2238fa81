#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/error.h>

#include <stdexcept>
#include <thread>

#include "compiler/compile.h"
#include "support/bound_arrays.h"
#include "support/error_of.h"
#include "support/number_of.h"
#include "support/random_program.h"
#include "support/toy_codelets.h"
#include "support/toy_machine.h"

namespace tessera::engine {
namespace {

using program::ComputeSet;
using program::Phase;
using program::Program;
using program::Role;
using program::StepId;
using testing::field;
using ::testing::HasSubstr;
using testing::toy_host;
using testing::toy_machine;
using testing::variable;
using testing::vertex;

using test::error_of;

/// x += 1 on every row, one row per tile, `times` times.
Program counting(uint32_t rows, uint32_t times, program::TileId space) {
  Program p;
  const auto x = p.add(variable("x", Type::u32, rows, 1, Role::inout, space));
  program::VertexGroup group{&testing::increment_codelet,
                             0,
                             rows,
                             1,
                             {{x, program::BoxSeries::stepped({0, 1, 0, 1}, {1, 0})}},
                             {int64_t{1}}};
  p.set_main(p.repeat(times, p.execute(ComputeSet{"count", Phase::compute, {std::move(group)}})));
  return p;
}

TEST(Engine, RunsOneAfterAnotherStartAfresh) {
  const Engine engine(compiler::compile(counting(3, 5, 0), toy_machine(3)));
  for (int run = 0; run < 3; ++run) {
    std::vector<uint32_t> x = {1, 20, 300};
    const Binding binding{0, x.data(), 1, 1};
    engine.run({&binding, 1});
    EXPECT_EQ(x, (std::vector<uint32_t>{6, 25, 305}));
  }
}

TEST(Engine, CallersOfSeveralThreadsShareAnEngine) {
  for (const machine::Machine& machine : {toy_machine(3), toy_host(3)}) {
    const program::TileId space = machine.has_shared_space() ? program::kShared : 0;
    const Engine engine(compiler::compile(counting(3, 50, space), machine));
    std::vector<std::thread> callers;
    std::vector<std::vector<uint32_t>> results(4, {0, 0, 0});
    for (uint32_t caller = 0; caller < results.size(); ++caller)
      callers.emplace_back([&, caller] {
        for (uint32_t run = 0; run < 8; ++run) {
          const Binding binding{0, results[caller].data(), 1, 1};
          engine.run({&binding, 1}, {.threads = 1 + (caller + run) % 3});
        }
      });
    for (std::thread& caller : callers) caller.join();
    for (const std::vector<uint32_t>& x : results) EXPECT_EQ(x, (std::vector<uint32_t>{400, 400, 400}));
  }
}

TEST(Engine, AnExceptionOfAVertexReachesTheCallerAndTheEngineGoesOn) {
  Program p;
  const auto x = p.add(variable("x", Type::u32, 4, 1, Role::inout));
  const auto fails = p.add(variable("fails", Type::u32, 1, 1, Role::input));
  const auto on_row = [&](const program::Codelet& codelet, uint32_t row, std::vector<program::Param> params) {
    return vertex(codelet, row, {field(x, {row, 1, 0, 1})}, std::move(params));
  };
  const StepId bad = p.execute(ComputeSet{
      "bad",
      Phase::compute,
      {on_row(testing::increment_codelet, 0, {int64_t{1}}), on_row(testing::throw_codelet, 3, {})}});
  const StepId good =
      p.execute(ComputeSet{"good", Phase::compute, {on_row(testing::increment_codelet, 1, {int64_t{1}})}});
  p.set_main(p.sequence({p.add(program::Step{program::If{fails, bad, program::kNoStep}}), good}));
  const Engine engine(compiler::compile(p, toy_host(4)));
  for (int run = 0; run < 100; ++run) {
    std::vector<uint32_t> data(4, 0);
    uint32_t flag = run % 2;
    const Binding bindings[] = {{x, data.data(), 1, 1}, {fails, &flag, 1, 1}};
    if (flag != 0) {
      EXPECT_THROW(engine.run(bindings, {.threads = 3}), std::runtime_error);
      EXPECT_EQ(data[1], 0u);
    } else {
      engine.run(bindings, {.threads = 3});
      EXPECT_EQ(data[1], 1u);
    }
  }
}

TEST(Engine, RejectsBindingsThatDoNotFitTheProgram) {
  const Engine engine(compiler::compile(counting(1, 1, 0), toy_machine(1)));
  EXPECT_EQ(error_of([&] { engine.run({}); }), "no array is bound to 'x' (1 × 1)");
  uint32_t x = 0;
  const Binding beyond[] = {{0, &x, 1, 1}, {1, &x, 1, 1}};
  for (const bool dry : {false, true})
    EXPECT_ERROR("an array is bound to variable 1", engine.run(beyond, {.dry = dry}));
  EXPECT_ERROR("an array is bound to variable 1",
               dry_run(compiler::compile(counting(1, 1, 0), toy_machine(1)), beyond));
}

TEST(Engine, ForgetsTheArraysOfTheRunBefore) {
  for (const machine::Machine& machine : {toy_machine(2), toy_host(2)})
    for (const bool profile : {false, true}) {
      const program::TileId space = machine.has_shared_space() ? program::kShared : 0;
      const Engine engine(compiler::compile(counting(2, 1, space), machine));
      std::vector<uint32_t> x = {1, 2};
      const Binding binding{0, x.data(), 1, 1};
      engine.run({&binding, 1}, {.profile = profile});
      EXPECT_EQ(error_of([&] { engine.run({}, {.profile = profile}); }), "no array is bound to 'x' (2 × 1)");
      EXPECT_EQ(x, (std::vector<uint32_t>{2, 3}));
    }
}

TEST(Engine, WithoutAProfileComputesTheSameAndTellsNothing) {
  for (uint64_t seed = 0; seed < 60; ++seed)
    for (const machine::Machine& machine : {toy_machine(3), toy_host(3)}) {
      const Program program = testing::random_program(seed, {machine.tiles, machine.has_shared_space()});
      const Engine engine(compiler::compile(program, machine));
      testing::BoundArrays expected(program, testing::flat_variables(program));
      engine.run(expected.bindings(), {.threads = 2});
      for (uint32_t threads : {1U, 3U}) {
        testing::BoundArrays arrays(program, testing::flat_variables(program));
        const Profile profile = engine.run(arrays.bindings(), {.threads = threads, .profile = false});
        EXPECT_EQ(arrays.flat(), expected.flat()) << "seed " << seed;
        EXPECT_EQ(profile.seconds, 0);
        EXPECT_TRUE(profile.sets.empty());
      }
    }
}

/// Copies a box of x into two places of y, once more by a list of rows, and a row into columns' order.
Program large_copies(uint32_t rows, uint32_t cols) {
  Program p;
  const auto x = p.add(variable("x", Type::f32, rows, cols, Role::input));
  const auto y = p.add(variable("y", Type::f32, 2 * rows, cols, Role::output));
  const auto line = p.add(variable("line", Type::f32, 1, rows * cols, Role::input));
  const auto copied = p.add(variable("copied", Type::f32, 1, rows * cols, Role::output));
  auto listed = std::make_shared<std::vector<uint32_t>>();
  for (uint32_t r = 0; r < rows; ++r) listed->push_back(r * 7 % rows);
  const program::Box whole{0, rows, 0, cols};
  const program::Box all{0, 1, 0, rows * cols};
  const auto same = [](const program::Box& box) { return program::BoxSeries::same(box); };
  p.set_main(p.copy({"copies",
                     {{x, y, 1, same(whole), same({0, rows, 0, cols}), {}, {}, {}},
                      {x, y, 1, same(whole), same({rows, rows, 0, cols}), listed, {}, {}},
                      {line, copied, 1, same(all), same(all), {}, {}, {}}}}));
  return p;
}

TEST(Engine, CopiesOfAHostGiveTheSameOnAnyNumberOfThreads) {
  constexpr uint32_t kRows = 1000;  // no multiple of 7
  constexpr uint32_t kCols = 130;
  const Engine engine(compiler::compile(large_copies(kRows, kCols), toy_host(4)));
  std::vector<float> x(size_t{kRows} * kCols);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  for (uint32_t threads : {1U, 2U, 3U, 4U})
    for (const bool by_columns : {false, true}) {
      std::vector<float> y(2 * x.size(), -1);
      std::vector<float> copied(3 * x.size(), -1);
      const int64_t y_rows = 2 * kRows;
      const Binding bindings[] = {{0, x.data(), kCols, 1},
                                  {1, y.data(), by_columns ? 1 : kCols, by_columns ? y_rows : 1},
                                  {2, x.data(), 0, 1},
                                  {3, copied.data(), 0, 3}};
      engine.run(bindings, {.threads = threads, .profile = by_columns});
      for (uint32_t r = 0; r < kRows; ++r)
        for (uint32_t c = 0; c < kCols; ++c) {
          const auto at = [&](uint32_t row) {
            return y[by_columns ? row + size_t{c} * y_rows : size_t{row} * kCols + c];
          };
          ASSERT_EQ(at(r), x[size_t{r} * kCols + c]);
          ASSERT_EQ(at(kRows + r), x[size_t{r * 7 % kRows} * kCols + c]);
          ASSERT_EQ(copied[3 * (size_t{r} * kCols + c)], x[size_t{r} * kCols + c]);
        }
      ASSERT_EQ(copied[1], -1);
    }
}

TEST(Engine, RejectsAProgramThatDoesNotFitItsMachine) {
  const Engine engine(compiler::compile(counting(2, 1, 0), toy_machine(2, 100)));
  std::vector<uint32_t> x(2);
  const Binding binding{0, x.data(), 1, 1};
  EXPECT_THAT(error_of([&] {
                engine.run({&binding, 1});
              }),
              AllOf(HasSubstr("the program does not fit toy: tile 0 needs "),
                    HasSubstr(" bytes and has 100; it holds "), HasSubstr("; use smaller operands")));
  EXPECT_GT(engine.run({}, {.dry = true}).cycles.total(), 0);
}

TEST(Engine, RejectsARunTimeRowThatLeavesItsVariable) {
  for (const bool shared : {false, true}) {
    Program p;
    const program::TileId space = shared ? program::kShared : 0;
    const auto x = p.add(variable("x", Type::f32, 6, 2, Role::input, space));
    const auto y = p.add(variable("y", Type::f32, 2, 2, Role::output, space));
    const auto row = p.add(variable("row", Type::u32, 1, 1, Role::input, space));
    program::CopyGroup copy{
        x, y, 1, program::BoxSeries::same({3, 2, 0, 2}), program::BoxSeries::same({0, 2, 0, 2}), {}, {}, {}};
    copy.source_offset = program::RuntimeRow{row, 1};
    p.set_main(p.copy({"slice", {copy}}));
    const Engine engine(compiler::compile(p, shared ? toy_host(1) : toy_machine(1)));
    std::vector<float> from = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    std::vector<float> to(4);
    uint32_t index = 1;
    const Binding bindings[] = {{x, from.data(), 2, 1}, {y, to.data(), 2, 1}, {row, &index, 1, 1}};
    engine.run(bindings);
    EXPECT_EQ(to, (std::vector<float>{8, 9, 10, 11}));
    index = 2;
    EXPECT_EQ(error_of([&] { engine.run(bindings); }),
              "a run-time row leaves 'x': 2 rows further down, where 1 are left");
  }
}

TEST(Engine, UsesTheFastImplementationUnlessAskedForTheReference) {
  program::Codelet codelet = testing::fill_codelet;
  codelet.simd = [](const program::Vertex& v) { *v.fields[0].as<float>() = -1; };
  Program p;
  const auto y = p.add(variable("y", Type::f32, 1, 1, Role::output));
  p.set_main(testing::execute(p, codelet, {y}, {int64_t{5}}));
  const Engine engine(compiler::compile(p, toy_host(1)));
  float value = 0;
  const Binding binding{y, &value, 1, 1};
  engine.run({&binding, 1});
  EXPECT_EQ(value, -1);
  engine.run({&binding, 1}, {.reference = true});
  EXPECT_EQ(value, 5);
}

TEST(Profile, PhasesAddUpToTheSecondsAndStepsToThePhases) {
  for (const machine::Machine& machine : {toy_machine(5), toy_host(2)})
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const Program program = testing::random_program(seed, {machine.tiles, machine.has_shared_space()});
      const Engine engine(compiler::compile(program, machine));
      testing::BoundArrays arrays(program, testing::flat_variables(program));
      const Profile profile = engine.run(arrays.bindings(), {.threads = 2});
      EXPECT_NEAR(profile.phases.total(), profile.seconds, 1e-9 + 1e-6 * profile.seconds) << "seed " << seed;
      program::PhaseTimes steps;
      double cycles = 0;
      uint64_t supersteps = 0;
      for (const StepProfile& step : profile.sets) {
        steps += step.seconds;
        cycles += step.cycles.total();
        supersteps += step.times;
      }
      for (const StepProfile& step : profile.copies) {
        steps += step.seconds;
        cycles += step.cycles.total();
      }
      for (Phase phase : {Phase::rearrange, Phase::compute, Phase::reduce, Phase::exchange, Phase::sync})
        EXPECT_NEAR(steps[phase], profile.phases[phase], 1e-9);
      EXPECT_NEAR(cycles, profile.cycles.total(), 1e-6 * cycles);
      EXPECT_EQ(supersteps, profile.supersteps);
    }
}

TEST(Profile, AVertexSplitsItsTimeOverPhases) {
  program::Codelet codelet = testing::fill_codelet;
  codelet.reference = [](const program::Vertex& v) {
    v.enter(Phase::rearrange);
    const auto start = std::chrono::steady_clock::now();
    std::chrono::duration<double> spent{};
    do spent = std::chrono::steady_clock::now() - start;
    while (spent.count() < 1e-4);
    v.enter(Phase::compute);
  };
  Program p;
  const auto y = p.add(variable("y", Type::f32, 1, 1, Role::output));
  p.set_main(testing::execute(p, codelet, {y}, {int64_t{5}}));
  float value = 0;
  const Binding binding{y, &value, 1, 1};
  const Profile profile = Engine(compiler::compile(p, toy_host(1))).run({&binding, 1});
  EXPECT_GE(profile.phases[Phase::rearrange], 1e-4);
  EXPECT_LE(profile.phases[Phase::rearrange], profile.seconds);
}

/// Counts up to a limit in `limit`: known to the program, or bound by the caller.
Program loop(bool known) {
  Program p;
  const auto x = p.add(variable("x", Type::u32, 1, 1, Role::input, 0));
  const auto counter = p.add(variable("counter", Type::u32, 1, 1, Role::temporary, 0));
  const auto flag = p.add(variable("flag", Type::u32, 1, 1, Role::temporary, 0));
  const StepId body = testing::execute(p, testing::increment_codelet, {counter}, {int64_t{1}});
  const StepId test = known ? testing::execute(p, testing::below_codelet, {counter, flag}, {int64_t{4}})
                            : testing::execute(p, testing::odd_codelet, {x, flag}, {});
  // A repeat sets the counter to 0 before the loop reads it.
  const StepId start = p.repeat(1, program::kNoStep, counter);
  p.set_main(p.sequence({start, p.add(program::Step{program::While{test, flag, body}})}));
  return p;
}

TEST(DryRun, FollowsControlThatTheProgramKnows) {
  const Engine engine(compiler::compile(loop(true), toy_machine(1)));
  uint32_t x = 0;
  const Binding binding{0, &x, 1, 1};
  const Profile dry = engine.run({}, {.dry = true});
  const Profile full = engine.run({&binding, 1});
  EXPECT_EQ(dry.supersteps, 9u);
  EXPECT_EQ(dry.supersteps, full.supersteps);
  EXPECT_EQ(dry.cycles.total(), full.cycles.total());
}

TEST(DryRun, SaysWhereControlDependsOnPayload) {
  const Engine engine(compiler::compile(loop(false), toy_machine(1)));
  EXPECT_ERROR("its control flow depends on 'flag'", engine.run({}, {.dry = true}));
}

TEST(DryRun, FollowsControlThatBoundIntegersDecide) {
  Program p;
  const auto x = p.add(variable("x", Type::u32, 1, 1, Role::input, 0));
  const auto counter = p.add(variable("counter", Type::u32, 1, 1, Role::temporary, 0));
  const auto flag = p.add(variable("flag", Type::u32, 1, 1, Role::temporary, 0));
  const StepId test = testing::execute(p, testing::below_codelet, {x, flag}, {int64_t{4}});
  const StepId then = testing::execute(p, testing::increment_codelet, {counter}, {int64_t{1}});
  p.set_main(p.sequence({test, p.add(program::Step{program::If{flag, then, program::kNoStep}})}));
  const Engine engine(compiler::compile(std::move(p), toy_machine(1)));
  for (uint32_t value : {2U, 9U}) {
    const Binding binding{x, &value, 1, 1};
    const Profile dry = engine.run({&binding, 1}, {.dry = true});
    EXPECT_EQ(dry.supersteps, value < 4 ? 2U : 1U);
    EXPECT_EQ(dry.cycles.total(), engine.run({&binding, 1}).cycles.total());
  }
  EXPECT_ERROR("its control flow depends on 'flag'", engine.run({}, {.dry = true}));
}

/// As long as a dry run does not know what costs read, all passes of a loop cost the same. One that is not
/// followed takes no time.
TEST(DryRun, FollowsALoopOnlyForIntegersThatItKnows) {
  Program p;
  const auto x = p.add(variable("x", Type::u32, 1, 1, Role::input, 0));
  const auto flag = p.add(variable("flag", Type::u32, 1, 1, Role::temporary, 0));
  p.set_main(p.repeat(1000, testing::execute(p, testing::below_codelet, {x, flag}, {int64_t{4}})));
  const auto executable = compiler::compile(std::move(p), toy_machine(1));
  EXPECT_TRUE(executable->cycles_vary);
  const Engine engine(executable);
  const Profile ahead = engine.run({}, {.dry = true});
  EXPECT_EQ(ahead.seconds, 0);
  EXPECT_EQ(ahead.supersteps, 1000U);
  EXPECT_EQ(dry_run(executable).cycles.at, ahead.cycles.at);
  uint32_t value = 2;
  const Binding binding{x, &value, 1, 1};
  const Profile followed = engine.run({&binding, 1}, {.dry = true});
  EXPECT_GT(followed.seconds, 0);
  EXPECT_EQ(followed.supersteps, 1000U);
  EXPECT_DOUBLE_EQ(followed.cycles.total(), ahead.cycles.total());
}

TEST(DryRun, CountsTheCyclesOfAFullRun) {
  uint64_t followed = 0;
  const uint64_t programs = test::number_of_cases(100, 300);
  for (uint64_t seed = 0; seed < programs; ++seed) {
    const Program program = testing::random_program(seed, {3, false});
    const Engine engine(compiler::compile(program, toy_machine(3)));
    testing::BoundArrays arrays(program, testing::flat_variables(program));
    const Profile full = engine.run(arrays.bindings());
    try {
      const Profile dry = engine.run({}, {.dry = true});
      EXPECT_EQ(dry.cycles.total(), full.cycles.total()) << "seed " << seed;
      EXPECT_EQ(dry.supersteps, full.supersteps) << "seed " << seed;
      ++followed;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("a dry run cannot follow")) << "seed " << seed;
    }
  }
  EXPECT_GT(followed, programs / 4);
}

}  // namespace
}  // namespace tessera::engine
