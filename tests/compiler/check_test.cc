// The pass `check`, on corrupted results of the other passes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/error.h>

#include <functional>

#include "base/random.h"
#include "compiler/overlaps.h"
#include "compiler/passes.h"
#include "support/error_of.h"
#include "support/number_of.h"
#include "support/random_program.h"
#include "support/toy_codelets.h"
#include "support/toy_machine.h"

namespace tessera::compiler {
namespace {

using program::BoxSeries;
using program::Program;
using program::Role;
using testing::field;
using ::testing::HasSubstr;
using testing::variable;
using testing::vertex;

/// y = 2 · (a + b) on two tiles: a lies across from y, t is written across from where it lies.
Program sample() {
  Program p;
  const auto a = p.add(variable("a", Type::f32, 2, 4, Role::input, 1));
  const auto t = p.add(variable("t", Type::f32, 2, 4, Role::temporary, 0));
  const auto u = p.add(variable("u", Type::f32, 2, 4, Role::temporary, 0));
  const auto y = p.add(variable("y", Type::f32, 2, 4, Role::output, 0));
  const program::Box whole{0, 2, 0, 4};
  p.set_main(p.sequence({
      testing::execute(p, testing::add_codelet, {a, a, t}),
      testing::execute(p, testing::scale_codelet, {t}, {int64_t{2}}, 1),
      testing::execute(p, testing::add_codelet, {t, t, u}),
      p.copy({"result", {{u, y, 1, BoxSeries::same(whole), BoxSeries::same(whole), {}, {}, {}}}}),
  }));
  return p;
}

enum SampleSet { kAdd, kScale, kSum };
enum SampleVariable { kA, kT, kU, kY };

/// A compilation just before `check`.
struct Compiled {
  std::shared_ptr<const Program> program;
  std::shared_ptr<Executable> executable = std::make_shared<Executable>();
  machine::Machine machine;
  Compilation c{*program, machine};

  explicit Compiled(Program p = sample(), machine::Machine m = testing::toy_machine(2))
      : program(std::make_shared<const Program>(std::move(p))), machine(std::move(m)) {
    executable->program = program;
    executable->machine = machine;
    c.executable = executable;
    plan_exchange(c);
    find_liveness(c);
    count_code(c);
    place(c);
    resolve(c);
  }

  CompiledSet& set(SampleSet s) { return executable->sets[s]; }
  BoxAddress& place_of(SampleSet s, size_t f) { return set(s).places[set(s).vertices[0].first_place + f]; }
  uint64_t offset_of(SampleVariable v) const { return executable->mapped[v][0].offset; }
  /// Moves a variable and all references to its place.
  void move(SampleVariable v, uint64_t offset) {
    const BoxAddress old = executable->mapped[v][0];
    const auto follow = [&](BoxAddress& place) {
      if (place.store == old.store && place.space == old.space && place.offset == old.offset)
        place.offset = offset;
    };
    for (CompiledSet& set : executable->sets) {
      for (BoxAddress& place : set.places) follow(place);
      for (Exchange* exchange : {&set.before, &set.after})
        for (Transfer& t : exchange->transfers) follow(t.from), follow(t.to);
    }
    for (Exchange& exchange : executable->copies)
      for (Transfer& t : exchange.transfers) follow(t.from), follow(t.to);
    follow(executable->mapped[v][0]);
  }

  void rejects(const std::string& message) {
    const std::string error = test::error_of([&] { check(c); });
    EXPECT_THAT(error, HasSubstr("unsound executable: "));
    EXPECT_THAT(error, HasSubstr(message));
  }
};

/// Corrupts an executable in one place that matters: removes a transfer, or moves a field, a transfer or a
/// mapped box.
bool damage(Compiled& x, base::RandomSequence& random) {
  std::vector<Exchange*> exchanges;
  std::vector<BoxAddress*> places;
  for (size_t s = 0; s < x.executable->sets.size(); ++s) {
    CompiledSet& set = x.executable->sets[s];
    exchanges.insert(exchanges.end(), {&set.before, &set.after});
    for (const CompiledVertex& v : set.vertices)
      for (size_t f = 0; f < x.program->compute_sets()[s].groups[v.group].fields.size(); ++f)
        if (!x.c.sets[s].fields[v.first_place + f].box.empty())
          places.push_back(&set.places[v.first_place + f]);
  }
  for (size_t s = 0; s < x.executable->copies.size(); ++s) exchanges.push_back(&x.executable->copies[s]);
  std::erase_if(exchanges, [](const Exchange* e) { return e->transfers.empty(); });
  const bool moves_field = random.below(2) == 0;
  if (moves_field ? places.empty() : exchanges.empty()) return false;
  if (moves_field) {
    places[random.below(static_cast<uint32_t>(places.size()))]->offset += 4;
    return true;
  }
  std::vector<Transfer>& transfers =
      exchanges[random.below(static_cast<uint32_t>(exchanges.size()))]->transfers;
  Transfer& t = transfers[random.below(static_cast<uint32_t>(transfers.size()))];
  switch (random.below(3)) {
    case 0: t.to.offset += 4; break;
    case 1: t.from.offset += 4; break;
    default: transfers.erase(transfers.begin() + (&t - transfers.data()));
  }
  return true;
}

TEST(Check, AcceptsWhatThePassesMake) {
  Compiled x;
  EXPECT_NO_THROW(check(x.c));
  EXPECT_EQ(x.set(kAdd).before.transfers.size(), 1u);
  EXPECT_EQ(x.set(kScale).before.transfers.size(), 1u);
  EXPECT_EQ(x.set(kScale).after.transfers.size(), 1u);
  EXPECT_TRUE(x.set(kSum).before.empty());
}

/// A program with this number of steps after its calls are expanded.
Program of_steps(uint32_t steps) {
  Program p;
  const auto nothing = p.sequence({});
  constexpr uint32_t kInBody = 1022;  // with the body and its call 1024
  const auto body = p.sequence(std::vector<program::StepId>(kInBody, nothing));
  const auto call = p.add(program::Step{program::Call{p.add(program::Function{"f", body, {}}), {}}});
  std::vector<program::StepId> main((steps - 1) / (kInBody + 2), call);
  main.insert(main.end(), (steps - 1) % (kInBody + 2), nothing);
  p.set_main(p.sequence(std::move(main)));
  return p;
}

TEST(Check, FollowsEverySchedule) {
  constexpr uint32_t kMost = 1 << 20;
  Compiled longest(of_steps(kMost));
  EXPECT_NO_THROW(check(longest.c));
  EXPECT_EQ(test::error_of([&] { Compiled{of_steps(kMost + 1)}; }),
            "the program's schedule, its calls expanded, has more than 1048576 steps");
}

/// Each sequence has the one before twice.
TEST(Check, RefusesAFunctionOfTooManySteps) {
  Program p;
  const auto a = p.add(variable("a", Type::f32, 1, 1, Role::argument, 0));
  auto body = testing::execute(p, testing::scale_codelet, {a}, {int64_t{2}});
  for (int i = 0; i < 40; ++i) body = p.sequence({body, body});
  p.add(program::Function{"f", body, {{a, program::Access::inout}}});
  p.set_main(p.sequence({}));
  EXPECT_EQ(test::error_of([&] { Compiled{p}; }),
            "the program's schedule, its calls expanded, has more than 1048576 steps");
}

/// Calls keep their operands until the last step that touches them, which is not the last step here.
TEST(Check, FindsAnArgumentThatIsTouchedBeyondTheStepsThatKeepIt) {
  Program p;
  const auto a = p.add(variable("a", Type::f32, 2, 4, Role::argument, 0));
  const auto x = p.add(variable("x", Type::f32, 2, 4, Role::temporary, 0));
  const auto y = p.add(variable("y", Type::f32, 2, 4, Role::output, 0));
  const auto first = testing::execute(p, testing::add_codelet, {a, a, y});
  const auto last = testing::execute(p, testing::scale_codelet, {y}, {int64_t{2}});
  const auto f = p.add(program::Function{"f", p.sequence({first, last}), {{a, program::Access::in}}});
  p.set_main(p.sequence({testing::execute(p, testing::fill_codelet, {x}, {int64_t{1}}),
                         p.add(program::Step{program::Call{f, {{x, {0, 2, 0, 4}}}}})}));
  Compiled sound(std::move(p));
  EXPECT_NO_THROW(check(sound.c));
  const Touchers touchers(*sound.program);
  for (const program::ComputeSetId set : {0U, 1U}) {
    Overlaps overlaps(*sound.executable);
    overlaps.log().read(overlaps.mapped(a, 0));
    overlaps.close(touchers.of_set(set));
    const std::string beyond =
        "unsound executable: 'a' is touched while what calls pass for it may not be alive";
    EXPECT_EQ(test::error_of([&] { overlaps.check(); }), set == 0 ? "(no error)" : beyond);
  }
}

TEST(Check, FindsAMissingExchange) {
  Compiled before;
  before.set(kAdd).before.transfers.clear();
  before.rejects("compute set 'add': field 'a' of 'a' on tile 0 misses the exchange that brings it");
  Compiled after;
  after.set(kScale).after.transfers.clear();
  after.rejects("compute set 'scale': field 'y' of 't' on tile 1 misses the exchange that takes it back");
  Compiled copy;
  copy.executable->copies[0].transfers.clear();
  copy.rejects("copy 'result' misses a transfer from 'u' to 'y'");
  Compiled twice;
  std::vector<Transfer>& transfers = twice.executable->copies[0].transfers;
  transfers.push_back(transfers[0]);
  twice.rejects("copy 'result' moves 16 of 8 elements");
}

TEST(Check, FindsAnExchangeOfTheWrongElements) {
  Compiled shape;
  shape.set(kAdd).before.transfers[0].rows = 1;
  shape.rejects("field 'a' of 'a' on tile 0 misses the exchange that brings it");
  Compiled source;
  source.set(kAdd).before.transfers[0].from.offset = source.executable->arena_bytes.at(1) - 28;
  source.rejects("compute set 'add': a transfer of 2 × 4 elements ends at byte");
  Compiled stride;
  stride.set(kAdd).before.transfers[0].to.stride = 2;
  stride.rejects("compute set 'add': a transfer of 2 × 4 elements has rows that overlap");
}

TEST(Check, FindsAFieldOnAnotherTile) {
  Compiled x;
  x.place_of(kSum, 0).space = 1;
  x.rejects("compute set 'add': field 'a' of 't' on tile 0 lies on tile 1");
}

TEST(Check, FindsAFieldOutsideItsMemory) {
  Compiled x;
  x.place_of(kSum, 2).offset = x.executable->arena_bytes.at(0);
  x.rejects("compute set 'add': field 'y' of 'u' on tile 0 ends at byte");
}

TEST(Check, FindsAFieldBesideItsVariable) {
  Compiled x;
  std::swap(x.place_of(kSum, 0), x.place_of(kSum, 2));
  x.rejects("compute set 'add': field 'a' of 't' on tile 0 misses the exchange that brings it");
}

TEST(Check, FindsMissingAndMisplacedVertices) {
  Compiled missing;
  missing.set(kAdd).vertices.pop_back();
  missing.set(kAdd).tile_begin.back() = 0;
  missing.rejects("compute set 'add' has 0 of 1 vertices");
  Compiled moved;
  moved.set(kAdd).tiles[0] = 1;
  moved.rejects("compute set 'add': a vertex of tile 0 runs on tile 1");
}

TEST(Check, FindsPiecesThatShareBytesWhileBothAreAlive) {
  Compiled same;
  same.move(kU, same.offset_of(kT));
  same.rejects("overlap on tile 0 while both are alive");
  Compiled partly;
  partly.executable->arena_bytes[0] += 64;
  partly.move(kU, partly.offset_of(kT) + 24);
  partly.rejects("overlap on tile 0 while both are alive");
}

/// fill a; fill b; then `last`, which may read a.
Compiled two_fills(const std::function<program::StepId(Program&, program::VariableId a)>& last) {
  Program p;
  const auto a = p.add(variable("a", Type::u32, 1, 1, Role::temporary, 0));
  const auto b = p.add(variable("b", Type::u32, 1, 1, Role::temporary, 0));
  const auto fill = [&](program::VariableId v) {
    return testing::execute(p, testing::fill_codelet, {v}, {int64_t{1}});
  };
  p.set_main(p.sequence({fill(a), fill(b), last(p, a)}));
  return Compiled(std::move(p), testing::toy_machine(1));
}

TEST(Check, LetsPiecesShareBytesOneAfterAnother) {
  Compiled x = two_fills([](Program&, program::VariableId) { return program::kNoStep; });
  EXPECT_EQ(x.executable->mapped[0][0], x.executable->mapped[1][0]);
  EXPECT_NO_THROW(check(x.c));
}

/// The values that control flow reads must live until then: checked independently of placement.
TEST(Check, FindsAConditionThatIsOverwrittenBeforeItIsRead) {
  const auto rejects = [](const std::function<program::StepId(Program&, program::VariableId)>& last) {
    Compiled x = two_fills(last);
    EXPECT_NO_THROW(check(x.c));
    x.move(static_cast<SampleVariable>(1), x.offset_of(static_cast<SampleVariable>(0)));
    x.rejects("overlap on tile 0 while both are alive");
  };
  rejects([](Program& p, program::VariableId a) {
    return p.add(program::Step{program::If{a, program::kNoStep, program::kNoStep}});
  });
  rejects([](Program& p, program::VariableId a) {
    return p.add(program::Step{program::While{program::kNoStep, a, program::kNoStep}});
  });
  rejects([](Program& p, program::VariableId a) {
    const auto x = p.add(variable("x", Type::f32, 2, 4, Role::input, 0));
    const auto y = p.add(variable("y", Type::f32, 2, 4, Role::output, 0));
    const BoxSeries row = BoxSeries::same({0, 1, 0, 4});
    return p.copy({"row", {{x, y, 1, row, row, {}, {}, program::RuntimeRow{a, 1}}}});
  });
}

TEST(Check, FindsWhatAnotherPassOfALoopStillReads) {
  enum LoopVariable { kRead, kKept, kFilled };
  for (const uint32_t times : {1U, 2U, 3U}) {
    Program p;
    for (const char* name : {"read", "kept", "filled"})
      p.add(variable(name, Type::f32, 2, 4, Role::temporary, 0));
    const auto fill = [&](LoopVariable v) {
      return testing::execute(p, testing::fill_codelet, {v}, {int64_t{1}});
    };
    const auto add = [&](LoopVariable a, LoopVariable b, LoopVariable y) {
      return testing::execute(p, testing::add_codelet, {a, b, y});
    };
    const auto pass = p.sequence({add(kRead, kRead, kKept), fill(kFilled), add(kKept, kFilled, kKept)});
    p.set_main(p.sequence({fill(kRead), p.repeat(times, pass)}));
    Compiled x(std::move(p), testing::toy_machine(1));
    EXPECT_NO_THROW(check(x.c));
    x.move(static_cast<SampleVariable>(kFilled), x.offset_of(static_cast<SampleVariable>(kRead)));
    if (times == 1)
      EXPECT_NO_THROW(check(x.c));
    else
      x.rejects("overlap on tile 0 while both are alive");
  }
}

/// y = a - b, whose fields have alignments, y also in the interleaved region.
struct Demanding : Compiled {
  static Program demanding() {
    Program p;
    std::vector<testing::Taken> fields;
    for (const char* name : {"a", "b", "y"})
      fields.push_back(p.add(variable(name, Type::f32, 2, 4, Role::inout, 0)));
    p.set_main(testing::execute(p, testing::subtract_codelet, fields));
    return p;
  }
  Demanding() : Compiled(demanding(), testing::toy_machine_with_regions(1)) {}

  /// Moves a field and everything at its place.
  void move(size_t f, int64_t bytes) {
    place_of(kAdd, f).offset += static_cast<uint64_t>(bytes);
    executable->mapped[f][0].offset += static_cast<uint64_t>(bytes);
    executable->arena_bytes[0] += 64;
  }
};

TEST(Check, FindsFieldsThatLieWhereTheyMustNot) {
  Demanding sound;
  EXPECT_NO_THROW(check(sound.c));
  Demanding aligned;
  aligned.move(0, 8);
  aligned.rejects("field 'a' of 'a' on tile 0 lies at byte");
  Demanding region;
  region.executable->addresses[0].gap = 0;
  region.rejects("below the interleaved region");
}

class DamagedPrograms : public ::testing::TestWithParam<machine::Machine> {};

/// Random programs, compiled and then corrupted in one place.
TEST_P(DamagedPrograms, AreNeverAccepted) {
  uint32_t damaged = 0;
  const uint64_t programs = test::number_of_cases(130, 400);
  for (uint64_t seed = 0; seed < programs; ++seed) {
    SCOPED_TRACE(seed);
    const machine::Machine& machine = GetParam();
    Compiled x(testing::random_program(seed, {machine.tiles, machine.has_shared_space()}), machine);
    ASSERT_NO_THROW(check(x.c));
    base::RandomSequence random{base::RandomStream(seed, 5)};
    if (!damage(x, random)) continue;
    ++damaged;
    EXPECT_THROW(check(x.c), Error);
  }
  EXPECT_GT(damaged, programs * 2 / 5);
}

INSTANTIATE_TEST_SUITE_P(Machines, DamagedPrograms,
                         ::testing::Values(testing::toy_machine(2), testing::toy_machine(5),
                                           testing::toy_machine_with_regions(7)),
                         [](const auto& param) { return std::to_string(param.param.tiles); });

}  // namespace
}  // namespace tessera::compiler
