// Functions with operands, fields with run-time rows and ordered sets, when they run.
#include <gtest/gtest.h>

#include <numeric>

#include "compiler/compile.h"
#include "engine/engine.h"
#include "engine/session.h"
#include "support/error_of.h"
#include "support/toy_codelets.h"
#include "support/toy_machine.h"

namespace tessera::engine {
namespace {

using program::Access;
using program::Box;
using program::BoxSeries;
using program::Call;
using program::Function;
using program::Phase;
using program::Program;
using program::Role;
using program::RuntimeRow;
using program::Step;
using program::StepId;
using testing::variable;
using testing::vertex;

/// b = 2 · b, then b += a.
program::FunctionId double_and_add(Program& p, uint32_t rows, uint32_t cols) {
  const auto a = p.add(variable("a", Type::f32, rows, cols, Role::argument));
  const auto b = p.add(variable("b", Type::f32, rows, cols, Role::argument));
  const StepId twice = testing::execute(p, testing::scale_codelet, {b}, {int64_t{2}});
  const StepId add = testing::execute(p, testing::accumulate_codelet, {a, b});
  return p.add(Function{"double and add", p.sequence({twice, add}), {{a, Access::in}, {b, Access::inout}}});
}

TEST(Calls, WorkOnTheCallersArraysInPlace) {
  Program p;
  const auto x = p.add(variable("x", Type::f32, 2, 3, Role::input));
  const auto y = p.add(variable("y", Type::f32, 4, 5, Role::inout));
  const auto s = p.add(variable("s", Type::f32, 2, 3, Role::state));
  const auto f = double_and_add(p, 2, 3);
  const Box whole{0, 2, 0, 3};
  const auto call = [&](program::VariableId a, Box from, program::VariableId b, Box to) {
    return p.add(Step{Call{f, {{a, from}, {b, to}}}});
  };
  p.set_main(p.sequence(
      {call(x, whole, y, {1, 2, 2, 3}), call(y, {1, 2, 2, 3}, s, whole), call(x, whole, s, whole)}));
  Session session(compiler::compile(p, testing::toy_host(2)));

  std::vector<float> x_array = {1, 2, 3, 4, 5, 6};  // column-major
  std::vector<float> y_array(4 * 7, 10);            // with a gap after each row
  const Binding bindings[] = {{x, x_array.data(), 1, 2}, {y, y_array.data(), 7, 1}};
  session.run(bindings);
  std::vector<float> state(6);
  session.read("s", {reinterpret_cast<std::byte*>(state.data()), Type::f32, 2, 3, 3, 1});
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j) {
      const float x_ij = x_array[i + 2 * j];
      EXPECT_EQ(y_array[7 * (1 + i) + 2 + j], 20 + x_ij);
      EXPECT_EQ(state[3 * i + j], 2 * (20 + x_ij) + x_ij);
      y_array[7 * (1 + i) + 2 + j] = 10;
    }
  EXPECT_EQ(y_array, std::vector<float>(4 * 7, 10)) << "wrote beyond the box";
}

TEST(Calls, PassOnWhatWasPassed) {
  Program p;
  const auto y = p.add(variable("y", Type::f32, 4, 2, Role::inout));
  const auto f = double_and_add(p, 1, 2);
  const auto rows = p.add(variable("rows", Type::f32, 3, 2, Role::argument));
  const Box first{0, 1, 0, 2}, second{1, 1, 0, 2}, third{2, 1, 0, 2};
  const StepId down = p.sequence({p.add(Step{Call{f, {{rows, first}, {rows, second}}}}),
                                  p.add(Step{Call{f, {{rows, second}, {rows, third}}}})});
  const auto g = p.add(Function{"down", down, {{rows, Access::inout}}});
  p.set_main(p.add(Step{Call{g, {{y, {1, 3, 0, 2}}}}}));
  std::vector<float> array = {1, 1, 1, 1, 1, 1, 1, 1};
  const Binding binding{y, array.data(), 2, 1};
  Engine(compiler::compile(p, testing::toy_host(1))).run({&binding, 1});
  EXPECT_EQ(array, (std::vector<float>{1, 1, 1, 1, 3, 3, 5, 5}));
}

/// Rows of a variable on tiles that take turns.
program::Variable on_tiles(const char* name, Role role) {
  program::Variable v = variable(name, Type::f32, 2, 3, role);
  v.mapping = program::map_rows_to_tiles(2, 3);
  return v;
}

/// On each tile b = 2 · b, then b += a in rows that have changed tiles; called twice by another function.
Program passed_on_tiles() {
  Program p;
  const auto x = p.add(on_tiles("x", Role::input)), y = p.add(on_tiles("y", Role::inout)),
             s = p.add(on_tiles("s", Role::state));
  const auto a = p.add(on_tiles("a", Role::argument)), b = p.add(on_tiles("b", Role::argument)),
             outer = p.add(on_tiles("outer", Role::argument));
  const auto rows = [](program::VariableId v, bool swapped) {
    return program::Field{v, BoxSeries::table(swapped ? std::vector<Box>{{1, 1, 0, 3}, {0, 1, 0, 3}}
                                                      : std::vector<Box>{{0, 1, 0, 3}, {1, 1, 0, 3}})};
  };
  const StepId twice = p.execute(
      {"double", Phase::compute, {{&testing::scale_codelet, 0, 2, 1, {rows(b, false)}, {int64_t{2}}}}});
  const StepId add = p.execute(
      {"add", Phase::compute, {{&testing::accumulate_codelet, 0, 2, 1, {rows(a, true), rows(b, true)}, {}}}});
  const auto inner =
      p.add(Function{"inner", p.sequence({twice, add}), {{a, Access::in}, {b, Access::inout}}});
  const Box whole{0, 2, 0, 3};
  const auto call = [&](program::VariableId from, program::VariableId to) {
    return p.add(Step{Call{inner, {{from, whole}, {to, whole}}}});
  };
  const auto f =
      p.add(Function{"outer", p.sequence({call(x, outer), call(x, outer)}), {{outer, Access::inout}}});
  p.set_main(p.sequence({p.add(Step{Call{f, {{y, whole}}}}), call(y, s)}));
  return p;
}

TEST(Calls, PassWhatLiesOnTilesByItsAddress) {
  const Program p = passed_on_tiles();
  const auto e = compiler::compile(p, testing::toy_machine(2));
  EXPECT_EQ(e->memory.total.count("temporaries"), 0u) << "arguments take no memory";
  Session session(e);
  std::vector<float> x = {1, 2, 3, 4, 5, 6}, y(6, 10), state(6);
  const Binding bindings[] = {{p.find("x"), x.data(), 3, 1}, {p.find("y"), y.data(), 3, 1}};
  session.run(bindings);
  session.read("s", {reinterpret_cast<std::byte*>(state.data()), Type::f32, 2, 3, 3, 1});
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(y[i], 40 + 3 * x[i]);
    EXPECT_EQ(state[i], y[i]);
  }
  EXPECT_EQ(session.run(bindings, {.profile = true}).cycles.at,
            compiler::estimate(p, testing::toy_machine(2)).cycles.at);
}

TEST(Calls, PassOnTilesWhatIsAlignedForTheFunction) {
  Program p;
  const auto odd = p.add(variable("odd", Type::f32, 1, 1, Role::state, 0));
  const auto state = [&](const char* name) { return p.add(variable(name, Type::f32, 1, 3, Role::state, 0)); };
  const auto a = state("a"), b = state("b"), y = state("y");
  const auto argument = [&](const char* name) {
    return p.add(variable(name, Type::f32, 1, 3, Role::argument, 0));
  };
  const auto of_a = argument("of a"), of_b = argument("of b"), of_y = argument("of y");
  const Box row{0, 1, 0, 3};
  const StepId subtract =
      testing::execute(p, testing::subtract_codelet,
                       {testing::field(of_a, row), testing::field(of_b, row), testing::field(of_y, row)});
  const auto f =
      p.add(Function{"f", subtract, {{of_a, Access::in}, {of_b, Access::in}, {of_y, Access::out}}});
  const auto call = [&](program::VariableId first, program::VariableId second) {
    return p.add(Step{Call{f, {{first, row}, {second, row}, {y, row}}}});
  };
  p.set_main(p.sequence({call(a, b), call(b, a)}));
  const auto e = compiler::compile(p, testing::toy_machine_with_regions(1));
  const auto address = [&](program::VariableId v) { return e->addresses[0].of(e->mapped[v][0].offset); };
  for (const auto v : {a, b}) EXPECT_EQ(address(v) % 16, 0u);
  EXPECT_EQ(address(y) % 32, 0u);
  EXPECT_GE(address(y), e->machine.interleaved_from);
  EXPECT_LT(address(odd), e->machine.tile_bytes);
}

TEST(Calls, SaveAndLoadWithTheirExecutable) {
  Program p;
  const auto y = p.add(variable("y", Type::f32, 2, 2, Role::inout));
  const auto f = double_and_add(p, 1, 2);
  p.set_main(p.add(Step{Call{f, {{y, {0, 1, 0, 2}}, {y, {1, 1, 0, 2}}}}}));
  EXPECT_EQ(compiler::compile(p, testing::toy_host(1))->memory.tiles.size(), 1u);
  EXPECT_ERROR("lies in a shared space, which this machine lacks",
               compiler::compile(p, testing::toy_machine(1)));
}

// Run-time rows of fields.

/// y(t, :) = sum of x(t, :), for t = 0, 1, …, on a tile; x and y may lie on others.
Program sum_of_rows(uint32_t times, program::TileId x_tile, program::TileId y_tile, program::TileId tile) {
  Program p;
  const auto x = p.add(variable("x", Type::f32, 3, 4, Role::input, x_tile));
  const auto y = p.add(variable("y", Type::f32, 3, 1, Role::output, y_tile));
  const auto t = p.add(variable("t", Type::u32, 1, 1, Role::temporary, 0));
  const program::VertexGroup sum = vertex(testing::sum_codelet, tile,
                                          {{x, BoxSeries::same({0, 1, 0, 4}), RuntimeRow{t, 1}},
                                           {y, BoxSeries::same({0, 1, 0, 1}), RuntimeRow{t, 1}}});
  p.set_main(p.repeat(times, p.execute({"sum", Phase::compute, {sum}}), t));
  return p;
}

TEST(RunTimeRows, MoveFieldsWhereverTheyLie) {
  std::vector<float> x(12);
  std::iota(x.begin(), x.end(), 0.0F);
  const auto expect_sums = [&](const Program& p, const machine::Machine& machine) {
    std::vector<float> y(3, -1);
    const Binding bindings[] = {{0, x.data(), 4, 1}, {1, y.data(), 1, 1}};
    Engine(compiler::compile(p, machine)).run(bindings);
    EXPECT_EQ(y, (std::vector<float>{6, 22, 38}));
  };
  for (const program::TileId x_tile : {0, 1})
    for (const program::TileId y_tile : {0, 1})
      for (const program::TileId tile : {0, 1}) {
        SCOPED_TRACE(x_tile * 4 + y_tile * 2 + tile);
        expect_sums(sum_of_rows(3, x_tile, y_tile, tile), testing::toy_machine(2));
      }
  Program on_host = sum_of_rows(3, program::kShared, program::kShared, 0);
  expect_sums(on_host, testing::toy_machine(2, 64 << 10, 64 << 10));
}

TEST(RunTimeRows, EndTheRunWhenTheyLeaveTheVariable) {
  for (const program::TileId tile : {0, 1}) {  // in place, and by an exchange
    const Engine engine(compiler::compile(sum_of_rows(4, 0, 0, tile), testing::toy_machine(2)));
    std::vector<float> x(12), y(3);
    const Binding bindings[] = {{0, x.data(), 4, 1}, {1, y.data(), 1, 1}};
    EXPECT_ERROR("a run-time row leaves 'x': 3 rows further down, where 2 are left", engine.run(bindings));
  }
}

// Ordered sets.

TEST(OrderedSets, HandOnResultsVertexByVertex) {
  for (const uint32_t threads : {1, 3}) {
    Program p;
    const auto t = p.add(variable("t", Type::f32, 6, 4, Role::temporary));
    const auto y = p.add(variable("y", Type::f32, 6, 1, Role::output));
    const BoxSeries rows = BoxSeries::stepped({0, 1, 0, 4}, {1, 0});
    const program::VertexGroup fill{
        &testing::fill_codelet, 0, 3, 2, {{t, rows}}, {std::vector<int64_t>{0, 1, 2, 3, 4, 5}}};
    const program::VertexGroup scale{&testing::scale_codelet, 0, 3, 2, {{t, rows}}, {int64_t{2}}};
    const program::VertexGroup sum{
        &testing::sum_codelet, 0, 3, 2, {{t, rows}, {y, BoxSeries::stepped({0, 1, 0, 1}, {1, 0})}}, {}};
    p.set_main(p.execute({"chain", Phase::compute, {fill, scale, sum}, true}));
    std::vector<float> sums(6);
    const Binding binding{y, sums.data(), 1, 1};
    Engine(compiler::compile(p, testing::toy_host(3))).run({&binding, 1}, {.threads = threads});
    EXPECT_EQ(sums, (std::vector<float>{12, 20, 28, 36, 44, 52}));
  }
}

TEST(OrderedSets, MayBeEmpty) {
  for (const machine::Machine& machine : {testing::toy_host(2), testing::toy_machine(2)}) {
    Program p;
    p.set_main(p.execute({"nothing", Phase::compute, {}, true}));
    EXPECT_EQ(Engine(compiler::compile(p, machine)).run({}).supersteps, 1u);
  }
}

}  // namespace
}  // namespace tessera::engine
