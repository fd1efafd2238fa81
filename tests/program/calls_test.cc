// Functions with arguments, fields with run-time rows and ordered sets, as the verifier sees them.
#include <gtest/gtest.h>

#include "program/program.h"
#include "support/error_of.h"
#include "support/toy_codelets.h"

namespace tessera::program {
namespace {

using test::error_of;
using test::says;
using testing::field;
using testing::variable;
using testing::vertex;

constexpr Box kWhole{0, 2, 0, 4};

/// f(in a, inout b): b += a; main calls it with x and the upper half of y.
struct Sample {
  Variable x = variable("x", Type::f32, 2, 4, Role::inout);
  Variable y = variable("y", Type::f32, 4, 4, Role::inout);
  Variable a = variable("a", Type::f32, 2, 4, Role::argument);
  Variable b = variable("b", Type::f32, 2, 4, Role::argument);
  std::vector<Argument> arguments = {{2, Access::in}, {3, Access::inout}};
  VertexGroup accumulate = vertex(testing::accumulate_codelet, 0, {field(2, kWhole), field(3, kWhole)});
  std::vector<CallOperand> operands = {{0, kWhole}, {1, kWhole}};
  std::vector<VertexGroup> in_main;

  Program build() const {
    Program p;
    for (const Variable& v : {x, y, a, b}) p.add(v);
    const auto f = p.add(Function{"f", p.execute({"add", Phase::compute, {accumulate}}), arguments});
    std::vector<StepId> steps = {p.add(Step{Call{f, operands}})};
    if (!in_main.empty()) steps.push_back(p.execute({"main", Phase::compute, in_main}));
    p.set_main(p.sequence(std::move(steps)));
    return p;
  }
  std::string error() const {
    return error_of([&] { verify(build(), 2, true); });
  }
};

TEST(VerifyCalls, AcceptsBoxesThatMatch) {
  EXPECT_EQ(Sample().error(), "(no error)");
  Sample lower;
  lower.operands = {{1, {2, 2, 0, 4}}, {1, kWhole}};
  EXPECT_EQ(lower.error(), "(no error)") << "disjoint boxes of one variable";
}

TEST(VerifyCalls, RejectsOperandsThatDoNotMatch) {
  const auto error_with = [](std::vector<CallOperand> operands) {
    Sample s;
    s.operands = std::move(operands);
    return s.error();
  };
  EXPECT_TRUE(says(error_with({{0, kWhole}}), "a call of function 'f' passes 1 operands; it takes 2"));
  EXPECT_TRUE(says(error_with({{0, {0, 1, 0, 4}}, {1, kWhole}}),
                   "passes argument 'a' of function 'f' 1 × 4 f32 of 'x'; it is 2 × 4 f32"));
  EXPECT_TRUE(
      says(error_with({{0, kWhole}, {1, {3, 2, 0, 4}}}), "rows 3:5 × columns 0:4, outside 'y' (4 × 4)"));
  EXPECT_TRUE(
      says(error_with({{9, kWhole}, {1, kWhole}}), "passes argument 'a' of function 'f' variable 9 of 4"));
  EXPECT_TRUE(says(error_with({{1, {1, 2, 0, 4}}, {1, kWhole}}),
                   "passes rows 1:2 × columns 0:4 of 'y' twice, and it writes them"));
  Sample typed;
  typed.y.type = Type::u32;
  EXPECT_TRUE(says(typed.error(), "2 × 4 u32 of 'y'; it is 2 × 4 f32"));
  Sample constant;
  constant.y.role = Role::input;
  EXPECT_TRUE(
      says(constant.error(), "argument 'b' of function 'f', which it writes, 'y', which is read only"));
  Sample elsewhere;
  elsewhere.x = variable("x", Type::f32, 2, 4, Role::inout, 1);
  EXPECT_TRUE(says(elsewhere.error(), "'x', which does not lie in the shared space"));
}

TEST(VerifyCalls, RejectsArgumentsThatAreNotTheirFunctionsAlone) {
  Sample touched;
  touched.in_main = {vertex(testing::fill_codelet, 0, {field(3, kWhole)}, {int64_t{1}})};
  EXPECT_TRUE(says(touched.error(), "the main step touches 'b', an argument of function 'f'"));
  Sample written;
  written.arguments[1].access = Access::in;
  EXPECT_TRUE(says(written.error(), "function 'f' writes its argument 'b', which it declares as read"));
  Sample twice;
  twice.arguments[1].variable = 2;
  EXPECT_TRUE(says(twice.error(), "'a' is an argument twice"));
  Sample none;
  none.arguments.pop_back();
  none.operands.pop_back();
  EXPECT_TRUE(says(none.error(), "'b' is an argument of no function"));
  Sample role;
  role.a.role = Role::temporary;
  EXPECT_TRUE(says(role.error(), "an argument of function 'f' is not a variable of that role"));
  Sample space;
  space.a.mapping = {{{0, 1, 0, 4}, 1}, {{1, 1, 0, 4}, kShared}};
  EXPECT_TRUE(says(space.error(), "argument 'a' of function 'f' lies partly in the shared space"));
}

TEST(VerifyCalls, TakesForAnArgumentOnTilesWhatLiesThere) {
  Sample s;
  s.a = variable("a", Type::f32, 2, 4, Role::argument, 1);
  EXPECT_TRUE(says(s.error(), "'x', which does not lie on the same tiles"));
  s.x = variable("x", Type::f32, 2, 4, Role::inout, 1);
  EXPECT_EQ(s.error(), "(no error)");
  s.x = variable("x", Type::f32, 3, 4, Role::inout, 1);
  EXPECT_TRUE(says(s.error(), "'x', which does not lie on the same tiles")) << "a part of it";
}

TEST(VerifyCalls, RejectsWhatTheFunctionTouchesItself) {
  Sample s;  // b += x, where x is also passed: read twice
  s.accumulate.fields[0].variable = 0;
  EXPECT_EQ(s.error(), "(no error)");
  s.operands = {{1, kWhole}, {0, kWhole}};
  EXPECT_TRUE(says(s.error(), "a call passes 'x' to function 'f', which touches it itself"));
}

TEST(VerifyCalls, SeesThroughFunctionsThatCallOthers) {
  Program p;
  const auto x = p.add(variable("x", Type::f32, 2, 4, Role::inout));
  const auto inner_b = p.add(variable("inner b", Type::f32, 2, 4, Role::argument));
  const auto outer_b = p.add(variable("outer b", Type::f32, 2, 4, Role::argument));
  const StepId add = testing::execute(p, testing::accumulate_codelet, {x, inner_b});
  const auto inner = p.add(Function{"inner", add, {{inner_b, Access::inout}}});
  const StepId pass = p.add(Step{Call{inner, {{outer_b, kWhole}}}});
  const auto outer = p.add(Function{"outer", pass, {{outer_b, Access::inout}}});
  p.set_main(p.add(Step{Call{outer, {{x, kWhole}}}}));
  EXPECT_ERROR("a call passes 'x' to function 'outer'", verify(p, 2, true));
}

TEST(PrintCalls, ShowsWhatIsPassedHow) {
  const std::string text = to_string(Sample().build());
  EXPECT_TRUE(test::says(text, "a: argument f32 2 × 4, shared")) << text;
  EXPECT_TRUE(test::says(text, "function f(in a, inout b)")) << text;
  EXPECT_TRUE(test::says(text, "call f(x [0:2, 0:4], y [0:2, 0:4])")) << text;
}

// Run-time rows of fields.

/// Vertex i scales row i of x, moved down by a run-time row, on the tile of its column.
struct Moving {
  Variable x = variable("x", Type::f32, 8, 4, Role::inout, 0);
  Variable row = variable("row", Type::u32, 1, 1, Role::input, 0);
  std::vector<VertexGroup> groups = {{&testing::scale_codelet,
                                      0,
                                      1,
                                      2,
                                      {{0, BoxSeries::stepped({0, 1, 0, 4}, {1, 0}), RuntimeRow{1, 2}}},
                                      {int64_t{2}}}};

  std::string error() const {
    Program p;
    p.add(x);
    p.add(row);
    p.set_main(p.execute({"scale", Phase::compute, groups}));
    return error_of([&] { verify(p, 2, false); });
  }
};

TEST(VerifyRows, AcceptsRowsThatMoveTogether) {
  Moving m;
  EXPECT_EQ(m.error(), "(no error)");
  m.groups[0].fields[0].boxes = BoxSeries::stepped({0, 2, 0, 4}, {1, 0});
  EXPECT_TRUE(says(m.error(), "rows 1:2 × columns 0:4 of 'x' are written twice"));
}

TEST(VerifyRows, RejectsRowsThatMayMeet) {
  Moving still;  // another group writes a row that nothing moves
  still.groups.push_back({&testing::scale_codelet, 0, 1, 1, {field(0, {6, 1, 0, 4})}, {int64_t{2}}});
  EXPECT_TRUE(says(still.error(), "of 'x' are written twice"));
  still.groups[1].fields[0].row = RuntimeRow{1, 2};
  EXPECT_EQ(still.error(), "(no error)");
  still.groups[1].fields[0].row->stride = 1;
  EXPECT_TRUE(says(still.error(), "of 'x' are written twice"));
  Moving update;  // y = a − b, where y may be b or not
  update.groups = {
      {&testing::subtract_codelet,
       0,
       1,
       1,
       {field(0, {0, 1, 0, 4}), field(0, {0, 1, 0, 4}), {0, BoxSeries::same({0, 1, 0, 4}), RuntimeRow{1, 1}}},
       {}}};
  EXPECT_TRUE(says(update.error(), "updated in place through two different boxes"));
}

TEST(VerifyRows, RejectsIndicesThatAreNoneOrChange) {
  Moving none;
  none.groups[0].fields[0].row->index = 0;
  EXPECT_TRUE(says(none.error(), "control variable 'x' is f32 8 × 4; it must be one u32"));
  Moving apart;
  apart.x.mapping = map_linearly(8, 4, 2);
  EXPECT_TRUE(says(apart.error(), "a run-time row of 'x', whose rows lie in several spaces"));
  Moving changed;
  changed.row.role = Role::inout;
  changed.groups.push_back(vertex(testing::increment_codelet, 0, {field(1, {0, 1, 0, 1})}, {int64_t{1}}));
  EXPECT_TRUE(says(changed.error(), "of 'row' are written by one and read by another"));
}

// Ordered sets.

/// On two tiles: t = a value; t += t's neighbour x; y = t's sum.
struct Ordered {
  Variable x = variable("x", Type::f32, 2, 4, Role::input, 0);
  Variable t{"t", Type::f32, 2, 4, Role::temporary, map_rows_to_tiles(2, 4), {}};
  Variable y{"y", Type::f32, 2, 4, Role::output, map_rows_to_tiles(2, 4), {}};
  BoxSeries rows = BoxSeries::stepped({0, 1, 0, 4}, {1, 0});
  std::vector<VertexGroup> groups = {{&testing::fill_codelet, 0, 2, 1, {{1, rows}}, {int64_t{1}}},
                                     {&testing::accumulate_codelet, 0, 2, 1, {{0, rows}, {1, rows}}, {}},
                                     {&testing::sum_codelet, 0, 2, 1, {{1, rows}, {2, rows}}, {}}};
  bool ordered = true;

  std::string error() const {
    Program p;
    for (const Variable& v : {x, t, y}) p.add(v);
    p.set_main(p.execute({"chain", Phase::compute, groups, ordered}));
    return error_of([&] { verify(p, 2, false); });
  }
};

TEST(VerifyOrder, AcceptsWhatAVertexHandsOnToTheNextOfItsIndex) {
  Ordered s;
  EXPECT_EQ(s.error(), "(no error)");
  s.groups[2].fields[0].boxes = BoxSeries::stepped({0, 1, 0, 2}, {1, 0});
  EXPECT_EQ(s.error(), "(no error)") << "a part of what was written";
  s.ordered = false;
  EXPECT_TRUE(says(s.error(), "of 't' are written twice"));
}

TEST(VerifyOrder, RejectsWhatAVertexOfAnotherIndexTouches) {
  Ordered s;
  s.t.mapping = map_to_tile(2, 4, 0);
  s.y.mapping = map_to_tile(2, 4, 0);
  for (VertexGroup& group : s.groups) group.tiles = 1, group.per_tile = 2;
  EXPECT_EQ(s.error(), "(no error)");
  s.groups[2].fields[0].boxes = BoxSeries::stepped({1, 1, 0, 4}, {~0U, 0});
  EXPECT_TRUE(says(s.error(), "of 't' are written by one and read by another"));
}

TEST(VerifyOrder, RejectsWhatDoesNotLieOnTheTile) {
  Ordered s;
  s.t.mapping = map_to_tile(2, 4, 0);
  EXPECT_TRUE(
      says(s.error(),
           "ordered compute set 'chain' hands on rows 1:2 × columns 0:4 of 't', which do not lie on tile 1"));
  Ordered aligned;  // rows of 12 bytes do not lie at multiples of 16
  aligned.t = {"t", Type::f32, 2, 3, Role::temporary, map_to_tile(2, 3, 0), {}};
  aligned.x = variable("x", Type::f32, 2, 4, Role::input, 0);
  const BoxSeries rows = BoxSeries::stepped({0, 1, 0, 3}, {1, 0});
  aligned.groups = {{&testing::fill_codelet, 0, 1, 2, {{1, rows}}, {int64_t{1}}},
                    {&testing::subtract_codelet, 0, 1, 2, {{1, rows}, {0, rows}, {2, rows}}, {}}};
  aligned.y.mapping = map_to_tile(2, 4, 0);
  EXPECT_TRUE(says(aligned.error(), "where field 'a' of 'subtract' needs them"));
}

TEST(VerifyOrder, RejectsGroupsOfDifferentTiles) {
  Ordered s;
  s.groups[1].tiles = 1;
  EXPECT_TRUE(
      says(s.error(), "ordered compute set 'chain' has groups of different tiles or vertices per tile"));
}

}  // namespace
}  // namespace tessera::program
