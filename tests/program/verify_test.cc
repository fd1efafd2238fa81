#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/error.h>

#include "program/program.h"
#include "support/error_of.h"
#include "support/random_program.h"
#include "support/toy_codelets.h"

namespace tessera::program {
namespace {

using testing::field;
using ::testing::HasSubstr;
using testing::variable;

constexpr uint32_t kTiles = 2;

/// A sound program with one of everything, to be corrupted in one place.
struct Sample {
  Variable x = variable("x", Type::f32, 4, 8, Role::input, 0);
  Variable y = variable("y", Type::f32, 4, 8, Role::output, 0);
  Variable weights = variable("weights", Type::f32, 1, 8, Role::constant, 0);
  Variable counter = variable("counter", Type::u32, 1, 1, Role::temporary, 1);
  VertexGroup fill{
      &testing::fill_codelet, 0, 2, 1, {{1, BoxSeries::stepped({0, 2, 0, 8}, {2, 0})}}, {Param(7)}};
  VertexGroup add{&testing::add_codelet,
                  0,
                  2,
                  2,
                  {{0, BoxSeries::stepped({0, 1, 0, 8}, {1, 0})},
                   field(2, {0, 1, 0, 8}),
                   {1, BoxSeries::grid({0, 2, 0, 4}, {2, 0}, 2, {0, 4})}},
                  {}};
  VertexGroup second{&testing::scale_codelet, 0, 0, 1, {field(1, {})}, {Param(2)}};
  CopyGroup copy{
      0,  1,  2, BoxSeries::stepped({0, 1, 0, 8}, {1, 0}), BoxSeries::stepped({2, 1, 0, 8}, {1, 0}),
      {}, {}, {}};
  std::vector<Step> extra;
  bool has_shared_space = false;

  Program build() const {
    Program program;
    program.add(x);
    program.add(y);
    Variable filled = weights;
    if (filled.contents == nullptr && !without_contents)
      filled.contents = {new std::byte[filled.bytes()](), std::default_delete<std::byte[]>()};
    program.add(filled);
    program.add(counter);
    std::vector<StepId> steps = {program.execute({"fill", Phase::rearrange, {fill}}),
                                 program.execute({"add", Phase::compute, {add, second}})};
    steps.push_back(program.repeat(3, program.copy({"move", {copy}}), VariableId{3}));
    for (const Step& step : extra) steps.push_back(program.add(step));
    program.set_main(program.sequence(steps));
    return program;
  }
  bool without_contents = false;

  void accepts() const { EXPECT_NO_THROW(verify(build(), kTiles, has_shared_space)); }
  void rejects(const std::string& message) const {
    const std::string error = test::error_of([&] { verify(build(), kTiles, has_shared_space); });
    EXPECT_THAT(error, HasSubstr("unsound tile program: "));
    EXPECT_THAT(error, HasSubstr(message));
  }
};

TEST(Verify, AcceptsASoundProgram) { Sample().accepts(); }

TEST(Verify, RejectsStateThatNamesDoNotTell) {
  Sample s;
  s.x.role = s.y.role = Role::state;
  s.accepts();
  s.x.name = s.y.name;
  s.rejects("two state variables are called 'y'");
  s.x.name.clear();
  s.rejects("a state variable has no name");
}

TEST(Print, NamesRolesAndPurposes) {
  Sample s;
  s.x.purpose = Purpose::parameter;
  s.y.role = Role::state;
  s.y.purpose = Purpose::optimizer;
  const std::string text = to_string(s.build());
  EXPECT_THAT(text, HasSubstr("x: parameter input f32 4 × 8, [0:4, 0:8] on tile 0\n"));
  EXPECT_THAT(text, HasSubstr("y: optimizer state f32 4 × 8, [0:4, 0:8] on tile 0\n"));
  EXPECT_THAT(text, HasSubstr("weights: constant f32 1 × 8, [0:1, 0:8] on tile 0\n"));
}

TEST(Purpose, FollowsFromTypeAndRoleUnlessNamed) {
  const auto of = [](Type type, Role role) { return purpose_of(variable("v", type, 1, 1, role)); };
  EXPECT_EQ(of(Type::f32, Role::temporary), Purpose::activation);
  EXPECT_EQ(of(Type::f16, Role::input), Purpose::activation);
  EXPECT_EQ(of(Type::f32, Role::output), Purpose::activation);
  EXPECT_EQ(of(Type::f32, Role::constant), Purpose::parameter);
  EXPECT_EQ(of(Type::f32, Role::state), Purpose::parameter);
  EXPECT_EQ(of(Type::u16, Role::constant), Purpose::metadata);
  EXPECT_EQ(of(Type::u32, Role::state), Purpose::metadata);
  Variable stash = variable("v", Type::u8, 1, 1, Role::temporary);
  stash.purpose = Purpose::stash;
  EXPECT_EQ(purpose_of(stash), Purpose::stash);
}

TEST(Verify, RejectsAMappingOutsideItsVariable) {
  Sample s;
  s.x.mapping[0].box.rows = 5;
  s.rejects("mapping of 'x' (4 × 8) names rows 0:5 × columns 0:8 outside it");
}

TEST(Verify, RejectsTilesThatDoNotExist) {
  Sample s;
  s.x.mapping[0].tile = 2;
  s.rejects("'x' is mapped to tile 2 of 2");
  Sample t;
  t.add.first_tile = 1;
  t.rejects("'add' in compute set 'add' lies on tiles 1:3 of 2");
  Sample u;
  u.fill.first_tile = ~0U;
  u.rejects("lies on tiles 4294967295:4294967297 of 2");
}

TEST(Verify, RejectsASharedSpaceWhereThereIsNone) {
  Sample s;
  s.x.mapping[0].tile = kShared;
  s.rejects("'x' lies in a shared space, which this machine lacks");
  s.has_shared_space = true;
  s.accepts();
}

TEST(Verify, RejectsAMappingWithAGapOrAnOverlap) {
  Sample gap;
  gap.x.mapping[0].box.rows = 3;
  gap.rejects("the mapping of 'x' covers 24 of 32 elements");
  Sample twice;
  twice.x.mapping = {{{0, 3, 0, 8}, 0}, {{2, 2, 0, 4}, 1}, {{3, 1, 4, 4}, 1}};
  twice.rejects("mapping: rows 2:3 × columns 0:4 of 'x' are written twice");
}

TEST(Verify, LetsVerticesShareABoxThatTheyScatterTo) {
  static constexpr FieldSpec kScattered[] = {{.name = "y", .access = Access::out, .scattered = true}};
  Codelet scatter = testing::fill_codelet;
  scatter.fields = kScattered;
  Sample s;
  s.fill.fields = {field(1, {0, 4, 0, 8})};
  s.rejects("are written twice");
  s.fill.codelet = &scatter;
  s.accepts();
  s.fill.fields = {{1, BoxSeries::stepped({0, 3, 0, 8}, {1, 0})}};
  s.rejects("are written twice");
}

TEST(Verify, RejectsAConstantWithoutContents) {
  Sample s;
  s.without_contents = true;
  s.rejects("constant 'weights' has no contents");
}

TEST(Verify, RejectsCodeletsThatAreNotComplete) {
  Sample s;
  s.fill.codelet = nullptr;
  s.rejects("compute set 'fill' has a group without codelet");
  Codelet broken = testing::fill_codelet;
  broken.cost = nullptr;
  s.fill.codelet = &broken;
  s.rejects("codelet 'fill' lacks a reference implementation or a cost");
  const std::vector<FieldSpec> many(kMaxFields + 1, FieldSpec{"x"});
  broken = testing::fill_codelet;
  broken.fields = many;
  s.rejects("codelet 'fill' has 17 fields and 1 parameters; 16 and 16 are the most");
}

TEST(Verify, RejectsASignatureThatIsNotTheCodelets) {
  Sample s;
  s.add.fields.pop_back();
  s.rejects("'add' in compute set 'add' has 2 fields and 0 parameters; its codelet has 3 and 0");
  Sample t;
  t.fill.params.clear();
  t.rejects("'fill' in compute set 'fill' has 1 fields and 0 parameters; its codelet has 1 and 1");
  Sample u;
  u.fill.params[0].table = {1, 2, 3};
  u.rejects("'fill' in compute set 'fill': a parameter has 3 values for 2 vertices");
}

TEST(Verify, RejectsMoreVerticesThanCanBeNumbered) {
  Sample s;
  s.fill.per_tile = 1U << 31;
  s.rejects("has 2 × 2147483648 vertices, too many to number");
}

TEST(Verify, RejectsVariablesThatDoNotExist) {
  Sample s;
  s.add.fields[0].variable = 4;
  s.rejects("field 'a' of 'add' in compute set 'add' refers to variable 4 of 4");
  Sample t;
  t.copy.from = 9;
  t.rejects("copy 'move' refers to variable 9 of 4");
}

TEST(Verify, RejectsWritesToWhatIsReadOnly) {
  Sample s;
  s.fill.fields[0].variable = 0;
  s.rejects("field 'y' of 'fill' in compute set 'fill' writes 'x', which is read only");
  Sample t;
  t.second = {&testing::scale_codelet, 0, 1, 1, {field(2, {0, 1, 0, 8})}, {Param(2)}};
  t.rejects("field 'y' of 'scale' in compute set 'add' writes 'weights', which is read only");
  Sample u;
  std::swap(u.copy.from, u.copy.to);
  u.rejects("copy 'move' writes 'x', which is read only");
}

TEST(Verify, RejectsBoxesThatDoNotMatchTheVertices) {
  Sample s;
  s.add.fields[0].boxes = BoxSeries::table({{0, 1, 0, 8}, {1, 1, 0, 8}});
  s.rejects("field 'a' of 'add' in compute set 'add' has 2 boxes for 4 vertices or copies");
  Sample t;
  t.copy.target = BoxSeries::table({{2, 1, 0, 8}});
  t.rejects("copy 'move' has 1 boxes for 2 vertices or copies");
  Sample u;
  u.add.fields[2].boxes = BoxSeries::grid({0, 2, 0, 4}, {2, 0}, 0, {0, 4});
  u.rejects("has a grid of boxes without columns");
}

TEST(Verify, RejectsFieldsOutsideTheirVariable) {
  Sample stepped;
  stepped.add.fields[0].boxes = BoxSeries::stepped({0, 1, 0, 8}, {2, 0});
  stepped.rejects("field 'a' of 'add' in compute set 'add': rows 6:7 × columns 0:8 lie outside 'x' (4 × 8)");
  Sample table;
  table.fill.fields[0].boxes = BoxSeries::table({{0, 2, 0, 8}, {2, 3, 0, 8}});
  table.rejects("rows 2:5 × columns 0:8 lie outside 'y' (4 × 8)");
  Sample clipped;  // a regular series may overhang the edge
  clipped.fill.fields[0].boxes = BoxSeries::stepped({0, 3, 0, 9}, {3, 0});
  clipped.accepts();
}

TEST(Verify, RejectsTwoWritersOfAnElement) {
  Sample s;
  s.add.fields[2].boxes = BoxSeries::grid({0, 2, 0, 4}, {2, 0}, 2, {0, 3});
  s.rejects("compute set 'add': rows 0:2 × columns 3:4 of 'y' are written twice");
  Sample t;
  t.second = {&testing::fill_codelet, 1, 1, 1, {field(1, {3, 1, 7, 1})}, {Param(2)}};
  t.rejects("compute set 'add': rows 3:4 × columns 7:8 of 'y' are written twice");
}

TEST(Verify, RejectsAReaderOfWhatAnotherVertexWrites) {
  Sample s;
  s.add.fields[0] = {1, BoxSeries::same({0, 1, 0, 8})};
  s.rejects("of 'y' are written by one and read by another");
}

TEST(Verify, AcceptsAnUpdateInPlaceOfTheSameBoxOnly) {
  Sample s;
  s.add.fields[0] = s.add.fields[2];
  s.accepts();
  s.add.fields[0].boxes = BoxSeries::grid({0, 1, 0, 4}, {2, 0}, 2, {0, 4});
  s.rejects("of 'y' are updated in place through two different boxes");
}

TEST(Verify, RejectsCopiesThatDoNotMatch) {
  Sample shapes;
  shapes.copy.source = BoxSeries::same({0, 2, 0, 8});
  shapes.rejects(
      "copy 'move': rows 0:2 × columns 0:8 of 'x' do not have the shape of rows 2:3 × columns 0:8 "
      "of 'y'");
  Sample types;
  types.x.type = Type::f16;
  types.rejects("copy 'move': 'x' is f16, 'y' is f32");
  Sample target;
  target.copy.target = BoxSeries::stepped({3, 1, 0, 8}, {1, 0});
  target.rejects("copy 'move': rows 4:5 × columns 0:8 lie outside 'y' (4 × 8)");
  Sample source;
  source.copy.source = BoxSeries::stepped({3, 1, 0, 8}, {1, 0});
  source.rejects("copy 'move': rows 4:5 × columns 0:8 lie outside 'x' (4 × 8)");
}

TEST(Verify, RejectsCopiesThatWriteWhatACopyReads) {
  Sample s;
  s.copy.from = 1;
  s.copy.count = 1;
  s.copy.source = BoxSeries::same({0, 2, 0, 8});
  s.copy.target = BoxSeries::same({1, 2, 0, 8});
  s.rejects("copy 'move': rows 1:2 × columns 0:8 of 'y' are written by one and read by another");
  s.copy.target = BoxSeries::same({2, 2, 0, 8});
  s.accepts();
  s.copy.count = 2;
  s.rejects("of 'y' are written twice");
}

TEST(Verify, LetsCopiesOfTheirTileAloneReachStreamingMemory) {
  const auto beside = [](TileId tile, Role role = Role::temporary) {
    Variable v = variable("s", Type::f32, 4, 8, role, tile);
    v.streaming = true;
    return v;
  };
  const auto why = [&](const Variable& s, const std::function<StepId(Program&)>& step, bool shared = false) {
    Program program;
    program.add(variable("x", Type::f32, 4, 8, Role::inout, 0));
    program.add(s);
    program.add(beside(0));
    program.set_main(step(program));
    return test::error_of([&] { verify(program, kTiles, shared); });
  };
  const auto copy = [](VariableId from, VariableId to) {
    return [=](Program& program) {
      const BoxSeries all = BoxSeries::table({{0, 4, 0, 8}});
      return program.copy({"stream", {{from, to, 1, all, all, {}, {}, {}}}});
    };
  };
  const auto execute = [](Program& program) {
    VertexGroup fill{&testing::fill_codelet, 0, 1, 1, {field(1, {0, 4, 0, 8})}, {Param(7)}};
    return program.execute({"fill", Phase::compute, {fill}});
  };
  EXPECT_EQ(why(beside(0), copy(0, 1)), "(no error)");
  EXPECT_EQ(why(beside(0, Role::state), copy(1, 0)), "(no error)");
  EXPECT_THAT(why(beside(1), copy(0, 1)), HasSubstr("which tiles move by themselves"));
  EXPECT_THAT(why(beside(0), copy(1, 2)), HasSubstr("within streaming memory"));
  EXPECT_THAT(why(beside(0), execute), HasSubstr("which lies in streaming memory"));
  EXPECT_THAT(why(beside(0, Role::input), copy(1, 0)), HasSubstr("which has state and temporaries only"));
  EXPECT_THAT(why(beside(0), copy(0, 1), true), HasSubstr("which a machine with a shared space lacks"));
}

TEST(Verify, LetsNothingTouchWhatIsCopiedBesideIt) {
  const auto why = [](const Box& taken, bool streaming, VariableId touched) {
    Program program;
    program.add(variable("x", Type::f32, 4, 8, Role::inout, 0));
    Variable s = variable("s", Type::f32, 4, 8, Role::state, 0);
    s.streaming = streaming;
    program.add(std::move(s));
    program.add(variable("y", Type::f32, 4, 8, Role::inout, 0));
    const VertexGroup fill{&testing::fill_codelet, 0, 1, 1, {field(touched, {0, 4, 0, 8})}, {Param(7)}};
    const StepId work = program.execute({"fill", Phase::compute, {fill}});
    const BoxSeries boxes = BoxSeries::table({taken});
    const CopySetId set = program.add(CopySet{"stream", {{1, 0, 1, boxes, boxes, {}, {}, {}}}});
    program.set_main(program.add(Step{Copy{set, program.sequence({work})}}));
    return test::error_of([&] { verify(program, kTiles, false); });
  };
  const Box whole{0, 4, 0, 8};
  EXPECT_EQ(why(whole, true, 2), "(no error)");
  EXPECT_THAT(why(whole, true, 0), HasSubstr("copies 'stream': 'x' is touched beside them"));
  EXPECT_THAT(why({0, 2, 0, 8}, true, 2), HasSubstr("'s' is not copied as a whole"));
  EXPECT_THAT(why(whole, false, 2), HasSubstr("'s' is not copied from or to streaming memory"));
}

TEST(Verify, RejectsRowListsThatLeaveTheVariableOrTheList) {
  Sample s;
  s.copy.source_rows = std::make_shared<std::vector<uint32_t>>(std::vector<uint32_t>{3, 4});
  s.rejects("copy 'move' gathers row 4 of 'x' (4 rows)");
  s.copy.source_rows = std::make_shared<std::vector<uint32_t>>(std::vector<uint32_t>{3});
  s.rejects("copy 'move': rows 1:2 × columns 0:8 lie outside 'x' (4 × 8)");
  s.copy.source_rows = std::make_shared<std::vector<uint32_t>>(std::vector<uint32_t>{3, 3});
  s.accepts();
  s.copy.from = 1;
  s.rejects("of 'y' are written by one and read by another");
}

TEST(Verify, RejectsRunTimeRowsThatItCannotCheck) {
  Sample s;
  s.copy.count = 1;
  s.copy.source_offset = RuntimeRow{3, 1};
  s.accepts();
  s.copy.source_offset->index = 0;
  s.rejects("control variable 'x' is f32 4 × 8; it must be one u32");
  s.copy.source_offset->index = 3;
  s.copy.source_rows = std::make_shared<std::vector<uint32_t>>(std::vector<uint32_t>{3});
  s.rejects("gathers listed rows of 'x' and moves them at run time");
  s.copy.source_rows = nullptr;
  s.x.mapping = map_linearly(4, 8, 2);
  s.rejects("copy 'move' has a run-time row of 'x', whose rows lie in several spaces");
  Sample anywhere;  // row 0 may move onto row 2, which another copy writes
  anywhere.copy.target_offset = RuntimeRow{3, 1};
  anywhere.rejects("of 'y' are written twice");
}

TEST(Verify, RejectsControlVariablesThatAreNotOneWord) {
  Sample s;
  s.counter.cols = 2;
  s.counter.mapping = map_to_tile(1, 2, 1);
  s.rejects("control variable 'counter' is u32 1 × 2; it must be one u32");
  Sample t;
  t.counter.type = Type::i32;
  t.rejects("control variable 'counter' is i32 1 × 1; it must be one u32");
  Sample u;
  u.counter.mapping.push_back({{0, 0, 0, 0}, 0});
  u.rejects("control variable 'counter' is mapped by 2 boxes; it must be one");
  Sample v;
  v.counter.role = Role::input;
  v.rejects("a repeat writes 'counter', which is read only");
}

TEST(Verify, RejectsStepsThatDoNotExist) {
  const std::pair<Step, const char*> broken[] = {
      {Execute{7}, "compute set 7 does not exist"},
      {Copy{7}, "copy set 7 does not exist"},
      {Call{7}, "function 7 does not exist"},
      {Sequence{{77}}, "step 77 of 6 does not exist"},
      {Repeat{1, 77, {}}, "step 77 of 6 does not exist"},
      {While{kNoStep, 1, kNoStep}, "control variable 'y'"},
      {While{77, 3, kNoStep}, "step 77 of 6 does not exist"},
      {If{9, kNoStep, kNoStep}, "control flow refers to variable 9 of 4"},
      {If{3, kNoStep, 77}, "step 77 of 6 does not exist"},
  };
  for (const auto& [step, message] : broken) {
    Sample s;
    s.extra = {step};
    s.rejects(message);
  }
}

TEST(Verify, RejectsAProgramWithoutMainAndStepsThatReachThemselves) {
  EXPECT_THROW(verify(Program(), 1, true), Error);
  Program recursive;
  recursive.add(Function{"f", 0});
  recursive.set_main(recursive.add(Step{Call{0}}));
  EXPECT_ERROR("step 0 reaches itself", verify(recursive, 1, true));
}

TEST(Verify, RejectsStepsThatLieTooDeepToFollow) {
  const auto nested = [](uint32_t depth) {
    Program p;
    StepId step = p.sequence({});
    for (uint32_t i = 1; i < depth; ++i) step = p.sequence({step});
    p.set_main(step);
    return p;
  };
  EXPECT_NO_THROW(verify(nested(1000), 1, true));
  EXPECT_ERROR("steps lie within one another deeper than 1000", verify(nested(1000000), 1, true));
}

TEST(Verify, FindsConflictsExactlyWhereAnElementWiseSearchDoes) {
  int conflicts = 0;
  constexpr int kSets = 3000;
  for (uint64_t seed = 0; seed < kSets; ++seed) {
    const Program program = testing::random_compute_set(seed, {3, true});
    const bool expected = testing::has_conflict(program);
    bool found = false;
    try {
      verify(program, 3, true);
    } catch (const Error&) {
      found = true;
    }
    ASSERT_EQ(found, expected) << "seed " << seed << "\n" << to_string(program);
    conflicts += expected;
  }
  EXPECT_GT(conflicts, kSets / 10);
  EXPECT_LT(conflicts, kSets * 9 / 10);
}

}  // namespace
}  // namespace tessera::program
