// State that stays from run to run.
#include "engine/session.h"

#include <gtest/gtest.h>
#include <tessera/error.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "engine/engine.h"
#include "io/files.h"
#include "io/safetensors.h"
#include "support/error_of.h"
#include "support/toy_codelets.h"
#include "support/toy_machine.h"

namespace tessera::engine {
namespace {

using program::ComputeSet;
using program::FieldView;
using program::Phase;
using program::Program;
using program::Role;
using test::error_of;
using testing::field;
using testing::toy_host;
using testing::toy_machine;
using testing::variable;
using testing::vertex;

constexpr program::Box kOne{0, 1, 0, 1};

template <class T>
std::shared_ptr<const std::byte> contents_of(const std::vector<T>& values) {
  auto kept = std::make_shared<const std::vector<T>>(values);
  return {kept, reinterpret_cast<const std::byte*>(kept->data())};
}

/// sum += x and steps += 1 on each run, with both in state; rows of sum lie on a tile each where there are
/// tiles.
std::shared_ptr<const compiler::Executable> summing(const machine::Machine& machine) {
  Program p;
  const bool tiled = machine.kind == machine::Kind::tiled;
  const program::TileId space = tiled ? 0 : program::kShared;
  const auto x = p.add(variable("x", Type::f32, 4, 3, Role::input, space));
  program::Variable sum = variable("sum", Type::f32, 4, 3, Role::state, space);
  if (tiled) sum.mapping = program::map_rows_to_tiles(4, 3);
  sum.contents = contents_of<float>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  const auto total = p.add(sum);
  const auto steps = p.add(variable("steps", Type::u32, 1, 1, Role::state, space));
  const auto row = program::BoxSeries::stepped({0, 1, 0, 3}, {1, 0});
  const program::VertexGroup add{&testing::accumulate_codelet, 0, 4, 1, {{x, row}, {total, row}}, {}};
  p.set_main(p.sequence({p.execute(ComputeSet{"add", Phase::compute, {add}}),
                         testing::execute(p, testing::increment_codelet, {steps}, {int64_t{1}})}));
  return compiler::compile(std::move(p), machine);
}

template <class T>
FieldView view_of(std::vector<T>& values, Type type, uint32_t rows, uint32_t cols) {
  return {reinterpret_cast<std::byte*>(values.data()), type, rows, cols, cols, 1};
}

std::vector<float> sum_of(const Session& session) {
  std::vector<float> sum(12);
  session.read("sum", view_of(sum, Type::f32, 4, 3));
  return sum;
}

uint32_t steps_of(const Session& session) {
  std::vector<uint32_t> steps(1);
  session.read("steps", view_of(steps, Type::u32, 1, 1));
  return steps[0];
}

void run(Session& session, float x, uint32_t times = 1) {
  std::vector<float> values(12, x);
  const Binding binding{0, values.data(), 3, 1};
  for (uint32_t i = 0; i < times; ++i) session.run({&binding, 1}, {.threads = 2});
}

std::vector<float> counted_from(float first) {
  std::vector<float> values(12);
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i);
  return values;
}

class Sessions : public ::testing::TestWithParam<machine::Machine> {};

INSTANTIATE_TEST_SUITE_P(Machines, Sessions, ::testing::Values(toy_machine(4), toy_host(4)),
                         [](const auto& param) { return param.param.name; });

TEST_P(Sessions, KeepStateFromRunToRun) {
  Session session(summing(GetParam()));
  EXPECT_EQ(sum_of(session), counted_from(1));
  EXPECT_EQ(steps_of(session), 0U);
  run(session, 2);
  EXPECT_EQ(sum_of(session), counted_from(3));
  run(session, 0.5F, 4);
  EXPECT_EQ(sum_of(session), counted_from(5));
  EXPECT_EQ(steps_of(session), 5U);
  session.reset();
  EXPECT_EQ(sum_of(session), counted_from(1));
  EXPECT_EQ(steps_of(session), 0U);
}

/// When a vertex throws: before or after sum += x, which the main step or a function computes.
enum class Throws : uint8_t { before, after, after_call };

std::shared_ptr<const compiler::Executable> throwing(const machine::Machine& machine, Throws when) {
  Program p;
  const program::TileId space = machine.kind == machine::Kind::tiled ? 0 : program::kShared;
  const auto x = p.add(variable("x", Type::f32, 4, 3, Role::input, space));
  const auto sum = p.add(variable("sum", Type::f32, 4, 3, Role::state, space));
  const auto add_to = [&](program::VariableId to) {
    return testing::execute(p, testing::accumulate_codelet, {x, to});
  };
  const auto add_by_call = [&] {
    const auto to = p.add(variable("to", Type::f32, 4, 3, Role::argument, space));
    const auto add = p.add(program::Function{"add", add_to(to), {{to, program::Access::inout}}});
    return p.add(program::Step{program::Call{add, {{sum, {0, 4, 0, 3}}}}});
  };
  const program::StepId fails = testing::execute(p, testing::throw_codelet, {x}),
                        adds = when == Throws::after_call ? add_by_call() : add_to(sum);
  p.set_main(when == Throws::before ? p.sequence({fails, adds}) : p.sequence({adds, fails}));
  return compiler::compile(std::move(p), machine);
}

TEST_P(Sessions, SayWhatAFailedRunMayHaveHalfWritten) {
  for (const Throws when : {Throws::before, Throws::after, Throws::after_call}) {
    Session session(throwing(GetParam(), when));
    EXPECT_TRUE(session.half_written().empty());
    EXPECT_THROW(run(session, 1), std::runtime_error);
    std::vector<std::string> names;
    for (const program::VariableId v : session.half_written())
      names.push_back(session.executable().program->variable(v).name);
    EXPECT_EQ(names, when == Throws::before ? std::vector<std::string>{} : std::vector<std::string>{"sum"});
  }
}

TEST_P(Sessions, OfOneExecutableAreIndependent) {
  const auto executable = summing(GetParam());
  Session first(executable);
  Session second(executable);
  std::thread other([&] { run(second, 1, 200); });
  run(first, 2, 200);
  other.join();
  EXPECT_EQ(sum_of(first), counted_from(401));
  EXPECT_EQ(sum_of(second), counted_from(201));
}

TEST_P(Sessions, CallersOfOneTakeTurns) {
  Session session(summing(GetParam()));
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&] {
      run(session, 1, 50);
      EXPECT_GE(steps_of(session), 50U);
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum_of(session), counted_from(201));
  EXPECT_EQ(steps_of(session), 200U);
}

TEST_P(Sessions, ReadAndWriteArraysOfAnyStrides) {
  Session session(summing(GetParam()));
  std::vector<float> columns(3 * 5, -1);
  const FieldView by_column{reinterpret_cast<std::byte*>(columns.data()), Type::f32, 4, 3, 1, 5};
  session.read("sum", by_column);
  EXPECT_EQ(columns, (std::vector<float>{1, 4, 7, 10, -1, 2, 5, 8, 11, -1, 3, 6, 9, 12, -1}));
  for (float& value : columns) value *= 10;
  session.write("sum", by_column);
  EXPECT_EQ(sum_of(session), (std::vector<float>{10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120}));
  run(session, 1);
  EXPECT_EQ(sum_of(session)[11], 121);
}

TEST_P(Sessions, LendOnlyArraysThatLieInOnePiece) {
  Session session(summing(GetParam()));
  if (GetParam().kind == machine::Kind::host)
    EXPECT_EQ(session.memory_of("sum").rows, 4U);
  else
    for (const char* state : {"sum", "steps"}) EXPECT_USAGE_ERROR("lies on tiles", session.memory_of(state));
}

TEST_P(Sessions, SayWhatStateThereIs) {
  Session session(summing(GetParam()));
  std::vector<float> array(12);
  const FieldView view = view_of(array, Type::f32, 4, 3);
  EXPECT_EQ(error_of([&] { session.read("x", view); }),
            "the program has no state 'x'; its state is sum, steps");
  EXPECT_EQ(error_of([&] { session.write("steps", view); }),
            "the state 'steps' is u32 1 × 1; the array is f32 4 × 3");
  EXPECT_EQ(error_of([&] { session.read("sum", view_of(array, Type::f32, 3, 4)); }),
            "the state 'sum' is f32 4 × 3; the array is f32 3 × 4");
}

TEST_P(Sessions, EnginesForgetState) {
  Program p;
  const program::TileId space = GetParam().kind == machine::Kind::tiled ? 0 : program::kShared;
  const auto sum = p.add(variable("sum", Type::u32, 1, 1, Role::state, space));
  const auto y = p.add(variable("y", Type::u32, 1, 1, Role::output, space));
  p.set_main(p.sequence(
      {testing::execute(p, testing::increment_codelet, {sum}, {int64_t{1}}),
       p.copy({"tell",
               {{sum, y, 1, program::BoxSeries::same(kOne), program::BoxSeries::same(kOne), {}, {}, {}}}})}));
  const auto executable = compiler::compile(std::move(p), GetParam());
  const Engine engine(executable);
  Session session(executable);
  uint32_t value = 0;
  const Binding binding{y, &value, 1, 1};
  for (uint32_t i = 1; i < 4; ++i) {
    engine.run({&binding, 1});
    EXPECT_EQ(value, 1U);
    session.run({&binding, 1});
    EXPECT_EQ(value, i);
  }
}

/// Runs twice as long when its state is odd.
Program alternating() {
  Program p;
  const auto state = p.add(variable("state", Type::u32, 1, 1, Role::state, 0));
  const auto flag = p.add(variable("flag", Type::u32, 1, 1, Role::temporary, 0));
  const auto test = testing::execute(p, testing::below_codelet, {state, flag}, {int64_t{1}});
  const auto then = testing::execute(p, testing::increment_codelet, {state}, {int64_t{1}});
  p.set_main(p.sequence({test, p.add(program::Step{program::If{flag, then, program::kNoStep}})}));
  return p;
}

TEST(SessionDryRun, FollowsTheIntegersOfItsStateAndLeavesThem) {
  Session session(compiler::compile(alternating(), toy_machine(1)));
  for (int repeat = 0; repeat < 2; ++repeat) EXPECT_EQ(session.run({}, {.dry = true}).supersteps, 2U);
  EXPECT_EQ(session.run({}).supersteps, 2U);
  for (int repeat = 0; repeat < 2; ++repeat) EXPECT_EQ(session.run({}, {.dry = true}).supersteps, 1U);
  EXPECT_EQ(session.run({}).supersteps, 1U);
  session.reset();
  const Profile dry = session.run({}, {.dry = true});
  EXPECT_EQ(dry.cycles.at, session.run({}).cycles.at);
}

TEST(SessionDryRun, NeedsNoMemoryOfTheMachine) {
  Session session(compiler::compile(alternating(), toy_machine(1, 100)));
  EXPECT_EQ(session.run({}, {.dry = true}).supersteps, 2U);
  EXPECT_ERROR("the program does not fit toy: tile 0 needs", session.run({}));
  EXPECT_ERROR("the program does not fit toy", session.reset());
}

TEST(SessionCycles, StateIsNotTakenToTheTilesAndBack) {
  const auto executable = summing(toy_machine(4));
  EXPECT_EQ(executable->memory.tiles[3][compiler::MemoryUse::state], 12U);
  for (const compiler::CompiledSet& set : executable->sets) EXPECT_TRUE(set.after.empty());
}

class StateFile : public ::testing::TestWithParam<machine::Machine> {
 protected:
  std::string bytes() const { return test::content_of(path_); }

  test::TemporaryFolder folder_;
  std::string path_ = folder_.file("state.safetensors");
};

INSTANTIATE_TEST_SUITE_P(Machines, StateFile, ::testing::Values(toy_machine(4), toy_host(4)),
                         [](const auto& param) { return param.param.name; });

TEST_P(StateFile, KeepsEveryBit) {
  Session saved(summing(GetParam()));
  std::vector<uint32_t> patterns = {0x7FC12345, 0xFF800000, 0x80000000, 1,          0x7F7FFFFF, 0xFFC00001,
                                    0x00800000, 0x3F800000, 0x7F800001, 0xDEADBEEF, 0,          0xBF800000};
  saved.write("sum", {reinterpret_cast<std::byte*>(patterns.data()), Type::f32, 4, 3, 3, 1});
  saved.save(path_);
  Session loaded(summing(GetParam()));
  run(loaded, 1);
  loaded.load(path_);
  std::vector<uint32_t> got(12);
  loaded.read("sum", {reinterpret_cast<std::byte*>(got.data()), Type::f32, 4, 3, 3, 1});
  EXPECT_EQ(got, patterns);
  EXPECT_EQ(steps_of(loaded), 0U);
  const std::string once = bytes();
  loaded.save(path_);
  EXPECT_EQ(bytes(), once);
}

TEST_P(StateFile, HasAllStateWhereverItIsAmongTheVariables) {
  const program::TileId space = GetParam().kind == machine::Kind::tiled ? 0 : program::kShared;
  Program p;
  std::vector<program::StepId> steps;
  for (const char* name : {"first", "second", "third"}) {
    const auto counter = p.add(variable(name, Type::u32, 1, 1, Role::state, space));
    p.add(variable(std::string(name) + ".beside", Type::u32, 1, 1, Role::temporary, space));
    steps.push_back(
        p.execute(ComputeSet{name,
                             Phase::compute,
                             {vertex(testing::increment_codelet, 0, {field(counter, kOne)}, {int64_t{1}})}}));
  }
  p.set_main(p.sequence(std::move(steps)));
  const auto executable = compiler::compile(std::move(p), GetParam());
  Session saved(executable), loaded(executable);
  for (int i = 0; i < 5; ++i) saved.run({}, {.threads = 1});
  saved.save(path_);
  loaded.load(path_);
  for (const char* name : {"first", "second", "third"}) {
    std::vector<uint32_t> count(1);
    loaded.read(name, view_of(count, Type::u32, 1, 1));
    EXPECT_EQ(count[0], 5U) << name;
  }
}

TEST_P(StateFile, IsOfAnyMachine) {
  Session saved(summing(GetParam()));
  run(saved, 3);
  saved.save(path_);
  for (const machine::Machine& machine : {toy_machine(4), toy_host(4)}) {
    Session loaded(summing(machine));
    loaded.load(path_);
    EXPECT_EQ(sum_of(loaded), counted_from(4));
    EXPECT_EQ(steps_of(loaded), 1U);
  }
}

TEST_P(StateFile, ThatDoesNotFitChangesNothing) {
  Session session(summing(GetParam()));
  run(session, 1);
  std::vector<float> sum(12);
  const uint32_t steps = 77;
  const io::TensorData good_sum{"sum", "F32", {4, 3}, std::as_bytes(std::span(sum))};
  const io::TensorData good_steps{"steps", "U32", {1, 1}, std::as_bytes(std::span(&steps, 1))};
  io::TensorData turned = good_sum;
  turned.shape = {3, 4};
  io::TensorData integers = good_steps;
  integers.dtype = "I32";
  io::TensorData extra = good_steps;
  extra.name = "velocity";
  using Tensors = std::vector<io::TensorData>;
  const std::vector<std::pair<Tensors, std::string>> cases = {
      {{good_steps}, "it lacks the state 'sum'"},
      {{turned, good_steps}, "'sum' is F32 [3, 4]; the program's is F32 [4, 3]"},
      {{good_sum, integers}, "'steps' is I32 [1, 1]; the program's is U32 [1, 1]"},
      {{good_sum, good_steps, extra}, "it has 3 tensors; the program has 2 state variables"},
  };
  for (const auto& [tensors, message] : cases) {
    io::write_safetensors(path_, tensors);
    EXPECT_EQ(error_of([&] { session.load(path_); }), path_ + ": " + message);
  }
  std::ofstream(path_, std::ios::binary) << "no tensors";
  EXPECT_ERROR(path_, session.load(path_));
  EXPECT_EQ(sum_of(session), counted_from(2));
  EXPECT_EQ(steps_of(session), 1U);
}

TEST_P(StateFile, ThatCannotBeWrittenLeavesTheOldOne) {
  Session session(summing(GetParam()));
  session.save(path_);
  const std::string before = bytes();
  run(session, 1);
  const std::string blocked = folder_.file("a folder");
  std::filesystem::create_directory(blocked);
  EXPECT_THROW(session.save(blocked), Error);
  EXPECT_THROW(session.save(folder_.file("none/state")), Error);
  EXPECT_EQ(bytes(), before);
  EXPECT_EQ(folder_.count(), 2U);  // no temporary is left
}

/// y = x + state, through a temporary variable.
std::shared_ptr<const compiler::Executable> adding_state() {
  Program p;
  const auto x = p.add(variable("x", Type::f32, 4, 3, Role::input, program::kShared));
  program::Variable added = variable("added", Type::f32, 4, 3, Role::state, program::kShared);
  added.contents = contents_of<float>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  const auto state = p.add(added);
  const auto sum = p.add(variable("sum", Type::f32, 4, 3, Role::temporary, program::kShared));
  const auto y = p.add(variable("y", Type::f32, 4, 3, Role::output, program::kShared));
  const auto whole = program::BoxSeries::same({0, 4, 0, 3});
  const program::VertexGroup add{&testing::accumulate_codelet, 0, 1, 1, {{state, whole}, {sum, whole}}, {}};
  p.set_main(p.sequence({p.copy({"in", {{x, sum, 1, whole, whole, {}, {}, {}}}}),
                         p.execute(ComputeSet{"add", Phase::compute, {add}}),
                         p.copy({"out", {{sum, y, 1, whole, whole, {}, {}, {}}}})}));
  return compiler::compile(std::move(p), toy_host(1));
}

TEST(SessionsSideBySide, ShareTheState) {
  constexpr size_t kRuns = 50;
  const auto executable = adding_state();
  Session session(executable);
  const auto id = [&](std::string_view name) {
    program::VariableId found = 0;
    while (executable->program->variable(found).name != name) ++found;
    return found;
  };
  std::vector<std::vector<float>> x, y(kRuns, std::vector<float>(12));
  std::vector<std::vector<Binding>> runs;
  for (size_t i = 0; i < kRuns; ++i) x.emplace_back(12, static_cast<float>(i));
  for (size_t i = 0; i < kRuns; ++i)
    runs.push_back({{id("x"), x[i].data(), 3, 1}, {id("y"), y[i].data(), 3, 1}});
  for (uint32_t threads : {1U, 2U, 4U}) {
    session.run_side_by_side(runs, threads);
    for (size_t i = 0; i < kRuns; ++i) EXPECT_EQ(y[i], counted_from(static_cast<float>(i + 1)));
  }
  std::vector<float> other(12, 100);
  session.write("added", view_of(other, Type::f32, 4, 3));
  session.run_side_by_side({runs.data() + 1, 3}, 4);
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(y[i], std::vector<float>(12, 100 + static_cast<float>(i)));
  session.run(runs[7]);
  EXPECT_EQ(y[7], std::vector<float>(12, 107));
  const Binding output = runs[20].back();
  runs[20].pop_back();
  EXPECT_NE(error_of([&] { session.run_side_by_side(runs, 3); }).find("no array is bound to 'y'"),
            std::string::npos);
  runs[20].push_back(output);
  session.run_side_by_side(runs, 3);
  EXPECT_EQ(y[49], std::vector<float>(12, 149));
}

}  // namespace
}  // namespace tessera::engine
