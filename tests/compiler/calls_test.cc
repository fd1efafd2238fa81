// Memory and cost of functions with operands, run-time rows and ordered sets.
#include <gtest/gtest.h>

#include "compiler/compile.h"
#include "program/sizes.h"
#include "support/toy_codelets.h"
#include "support/toy_machine.h"

namespace tessera::compiler {
namespace {

using program::Access;
using program::Box;
using program::BoxSeries;
using program::Call;
using program::Function;
using program::Phase;
using program::Program;
using program::Role;
using program::Step;
using program::StepId;
using program::VariableId;
using testing::variable;
using testing::vertex;

constexpr Box kWhole{0, 4, 0, 8};
constexpr uint64_t kBytes = 4 * 8 * sizeof(float);

struct SharedArrays {
  Program program;

  VariableId temporary(const char* name, Role role = Role::temporary) {
    return program.add(variable(name, Type::f32, 4, 8, role));
  }
  StepId fill(VariableId to) { return testing::execute(program, testing::fill_codelet, {to}, {int64_t{1}}); }
  StepId add(VariableId a, VariableId b, VariableId to) {
    return testing::execute(program, testing::add_codelet, {a, b, to});
  }
  uint64_t arena_bytes(std::vector<StepId> steps) {
    program.set_main(program.sequence(std::move(steps)));
    return compile(program, testing::toy_host(1))->arena_bytes.at(program::kShared);
  }
};

/// f(in a, out b): two temporaries, one after the other, in between.
program::FunctionId copy_by_detour(SharedArrays& s) {
  const auto a = s.temporary("a", Role::argument);
  const auto b = s.temporary("b", Role::argument);
  const auto t = s.temporary("t");
  const auto u = s.temporary("u");
  const StepId body = s.program.sequence({s.add(a, a, t), s.add(t, t, u), s.add(u, u, b)});
  return s.program.add(Function{"f", body, {{a, Access::in}, {b, Access::out}}});
}

TEST(CallLiveness, OperandsLiveWhileTheFunctionUsesThem) {
  SharedArrays s;
  const auto f = copy_by_detour(s);
  const auto x = s.temporary("x"), y = s.temporary("y"), z = s.temporary("z");
  const auto call = [&](VariableId a, VariableId b) {
    return s.program.add(Step{Call{f, {{a, kWhole}, {b, kWhole}}}});
  };
  // t with x or y, then t and u, then u with y or z.
  EXPECT_EQ(s.arena_bytes({s.fill(x), call(x, y), call(y, z), s.add(z, z, y)}), 3 * kBytes);
}

TEST(CallLiveness, OperandsLiveThroughALoopOrCallThatTakesThem) {
  for (const bool is_called : {false, true}) {
    SharedArrays s;
    const auto t = s.temporary("t"), u = s.temporary("u");
    const auto steps_of = [&](VariableId v) { return s.program.sequence({s.add(v, v, t), s.add(t, t, u)}); };
    const auto a = s.temporary("a", Role::argument), b = s.temporary("b", Role::argument);
    StepId inner = program::kNoStep;
    if (is_called) {
      const auto c = s.temporary("c", Role::argument);
      const auto g = s.program.add(Function{"g", steps_of(c), {{c, Access::in}}});
      inner = s.program.add(Step{Call{g, {{a, kWhole}}}});
    } else {
      inner = s.program.repeat(2, steps_of(a));
    }
    const auto f = s.program.add(
        Function{"f", s.program.sequence({inner, s.add(u, u, b)}), {{a, Access::in}, {b, Access::out}}});
    const auto x = s.temporary("x"), y = s.temporary("y");
    const StepId call = s.program.add(Step{Call{f, {{x, kWhole}, {y, kWhole}}}});
    EXPECT_EQ(s.arena_bytes({s.fill(x), call, s.add(y, y, x)}), 3 * kBytes) << is_called;
  }
}

TEST(CallLiveness, AResultThatNothingTakesLivesUntilTheFunctionEnds) {
  SharedArrays s;
  const auto b = s.temporary("b", Role::argument), c = s.temporary("c", Role::argument);
  const auto t = s.temporary("t");
  const StepId body = s.program.sequence({s.fill(b), s.add(b, b, t), s.add(t, b, c)});
  const auto f = s.program.add(Function{"f", body, {{b, Access::out}, {c, Access::out}}});
  const auto y = s.temporary("y"), z = s.temporary("z"), w = s.temporary("w");
  const StepId call = s.program.add(Step{Call{f, {{y, kWhole}, {z, kWhole}}}});
  EXPECT_EQ(s.arena_bytes({call, s.add(z, z, w)}), 3 * kBytes);
}

TEST(CallLiveness, AnOutArgumentNeedsNothingBefore) {
  const auto bytes = [](Access access) {
    SharedArrays s;
    const auto b = s.temporary("b", Role::argument);
    const StepId body = access == Access::out ? s.fill(b) : s.add(b, b, b);
    const auto f = s.program.add(Function{"f", body, {{b, access}}});
    const auto x = s.temporary("x"), y = s.temporary("y"), z = s.temporary("z");
    const StepId call = s.program.add(Step{Call{f, {{x, kWhole}}}});
    return s.arena_bytes({s.fill(x), s.fill(y), s.add(y, y, z), call, s.add(x, x, y)});
  };
  EXPECT_EQ(bytes(Access::out), 2 * kBytes);
  EXPECT_EQ(bytes(Access::inout), 3 * kBytes);
}

TEST(CallLiveness, PartsOfAVariableSpareTheRest) {
  SharedArrays s;
  const auto b = s.program.add(variable("b", Type::f32, 2, 8, Role::argument));
  const StepId fill = testing::execute(s.program, testing::fill_codelet, {b}, {int64_t{1}});
  const auto f = s.program.add(Function{"f", fill, {{b, Access::out}}});
  const auto x = s.temporary("x"), y = s.temporary("y"), z = s.temporary("z");
  const StepId half = s.program.add(Step{Call{f, {{x, {2, 2, 0, 8}}}}});
  EXPECT_EQ(s.arena_bytes({s.fill(x), s.fill(y), s.add(y, y, z), half, s.add(x, x, y)}), 3 * kBytes);
}

/// On one tile: t is filled, scaled and summed.
Program chain(bool ordered, uint32_t per_tile) {
  Program p;
  const auto t = p.add(variable("t", Type::f32, 4, 8, Role::temporary, 0));
  const auto y = p.add(variable("y", Type::f32, 4, 1, Role::output, 0));
  const uint32_t rows = 4 / per_tile;
  const BoxSeries boxes = BoxSeries::stepped({0, rows, 0, 8}, {rows, 0});
  const BoxSeries sums = BoxSeries::stepped({0, rows, 0, 1}, {rows, 0});
  const program::VertexGroup fill{&testing::fill_codelet, 0, 1, per_tile, {{t, boxes}}, {int64_t{1}}};
  const program::VertexGroup scale{&testing::scale_codelet, 0, 1, per_tile, {{t, boxes}}, {int64_t{2}}};
  const program::VertexGroup sum{&testing::sum_codelet, 0, 1, per_tile, {{t, boxes}, {y, sums}}, {}};
  if (ordered) {
    p.set_main(p.repeat(3, p.execute({"chain", Phase::compute, {fill, scale, sum}, true})));
    return p;
  }
  p.set_main(p.repeat(3, p.sequence({p.execute({"fill", Phase::compute, {fill}}),
                                     p.execute({"scale", Phase::compute, {scale}}),
                                     p.execute({"sum", Phase::compute, {sum}})})));
  return p;
}

TEST(OrderedSets, KeepWhatTheyHandOnForTheirSuperstepAlone) {
  Program p = chain(true, 2);
  const auto u = p.add(variable("u", Type::f32, 4, 8, Role::temporary, 0));
  const auto z = p.add(variable("z", Type::f32, 4, 8, Role::temporary, 0));
  const StepId before = p.main();
  p.set_main(p.sequence({before, testing::execute(p, testing::fill_codelet, {u}, {int64_t{1}}),
                         testing::execute(p, testing::add_codelet, {u, u, z})}));
  EXPECT_EQ(compile(p, testing::toy_machine(1))->memory.fullest.at("temporaries"), 2 * kBytes);
}

TEST(OrderedSets, CostTheirVerticesAndOneSuperstep) {
  machine::Machine machine = testing::toy_machine(1);
  machine.superstep_cycles = 50;
  machine.workers_per_tile = 1;
  for (const uint32_t per_tile : {1, 2, 4}) {
    const Estimate chained = estimate(chain(true, per_tile), machine);
    const Estimate apart = estimate(chain(false, per_tile), machine);
    EXPECT_DOUBLE_EQ(apart.cycles.total() - chained.cycles.total(), 3 * 2 * 50) << per_tile;
    EXPECT_EQ(chained.memory.tiles[0][MemoryUse::vertex_state],
              apart.memory.tiles[0][MemoryUse::vertex_state]);
    EXPECT_EQ(chained.memory.tiles[0][MemoryUse::control_code] + 2 * program::control_code_bytes(0),
              apart.memory.tiles[0][MemoryUse::control_code]);
  }
}

TEST(OrderedSets, DealWhatFollowsOneAnotherToOneWorker) {
  machine::Machine machine = testing::toy_machine(1);
  machine.workers_per_tile = 2;
  const auto e = compile(chain(true, 2), machine);
  std::vector<uint32_t> order;
  for (const CompiledVertex& vertex : e->sets[0].vertices) order.push_back(10 * vertex.index + vertex.group);
  EXPECT_EQ(order, (std::vector<uint32_t>{0, 1, 2, 10, 11, 12}));
}

/// A call places the demands of its function's codelets on its operands only if it runs.
TEST(Calls, DemandNothingUnlessReached) {
  const auto bytes = [](bool calls, bool runs) {
    Program p;
    const auto on_tile = [&p](const char* name, Role role = Role::temporary) {
      return p.add(variable(name, Type::f32, 4, 8, role, 0));
    };
    const auto a = on_tile("a", Role::argument), b = on_tile("b", Role::argument),
               c = on_tile("c", Role::argument);
    const StepId body = testing::execute(p, testing::subtract_codelet, {a, b, c});
    const auto f = p.add(Function{"f", body, {{a, Access::in}, {b, Access::in}, {c, Access::out}}});
    const auto x = on_tile("x"), y = on_tile("y"), z = on_tile("z");
    std::vector<StepId> steps = {testing::execute(p, testing::fill_codelet, {x}, {int64_t{1}}),
                                 testing::execute(p, testing::add_codelet, {x, x, y}),
                                 testing::execute(p, testing::add_codelet, {x, y, z})};
    if (calls) {
      const StepId call = p.add(Step{Call{f, {{x, kWhole}, {y, kWhole}, {z, kWhole}}}});
      if (runs) steps.push_back(call);
    }
    p.set_main(p.sequence(std::move(steps)));
    return compile(p, testing::toy_machine(1))->arena_bytes.at(0);
  };
  EXPECT_EQ(bytes(true, false), bytes(false, false));
  EXPECT_GT(bytes(true, true), bytes(false, false));
}

}  // namespace
}  // namespace tessera::compiler
