// The pass `check`, on results of the other passes that were tampered with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/error.h>

#include "compiler/passes.h"
#include "support/toy_codelets.h"
#include "support/toy_machine.h"

namespace tessera::compiler {
namespace {

using program::BoxSeries;
using program::ComputeSet;
using program::Phase;
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
  const auto add =
      vertex(testing::add_codelet, 0, {field(a, whole), field(a, whole), field(t, whole)});
  const auto scale = vertex(testing::scale_codelet, 1, {field(t, whole)}, {int64_t{2}});
  const auto sum =
      vertex(testing::add_codelet, 0, {field(t, whole), field(t, whole), field(u, whole)});
  p.set_main(p.sequence({
      p.execute(ComputeSet{"add", Phase::compute, {add}}),
      p.execute(ComputeSet{"scale", Phase::compute, {scale}}),
      p.execute(ComputeSet{"sum", Phase::compute, {sum}}),
      p.copy({"result", {{u, y, 1, BoxSeries::same(whole), BoxSeries::same(whole), {}, {}, {}}}}),
  }));
  return p;
}

enum SampleSet { kAdd, kScale, kSum };
enum SampleVariable { kA, kT, kU, kY };

/// A compilation that stands before `check`.
struct Compiled {
  std::shared_ptr<const Program> program = std::make_shared<const Program>(sample());
  std::shared_ptr<Executable> executable = std::make_shared<Executable>();
  machine::Machine machine = testing::toy_machine(2);
  Compilation c{*program, machine, {}, {}, {}, {}, 0, {}, executable};

  Compiled() {
    executable->program = program;
    executable->machine = machine;
    plan_exchange(c);
    find_liveness(c);
    count_code(c);
    place(c);
    resolve(c);
  }

  CompiledSet& set(SampleSet s) { return executable->sets[s]; }
  Place& place_of(SampleSet s, size_t f) {
    return set(s).places[set(s).vertices[0].first_place + f];
  }
  Piece& piece_of(SampleVariable v) { return c.pieces[c.mapped[v][0]]; }

  void rejects(const std::string& message) {
    try {
      check(c);
      FAIL() << "was accepted; expected: " << message;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("the compiler made an unsound executable: "));
      EXPECT_THAT(e.what(), HasSubstr(message));
    }
  }
};

TEST(Check, AcceptsWhatThePassesMake) {
  Compiled x;
  EXPECT_NO_THROW(check(x.c));
  EXPECT_EQ(x.set(kAdd).before.transfers.size(), 1u);
  EXPECT_EQ(x.set(kScale).before.transfers.size(), 1u);
  EXPECT_EQ(x.set(kScale).after.transfers.size(), 1u);
  EXPECT_TRUE(x.set(kSum).before.empty());
}

TEST(Check, FindsAMissingExchange) {
  Compiled before;
  before.set(kAdd).before.transfers.clear();
  before.rejects(
      "compute set 'add': field 'a' of 'a' on tile 0 misses the exchange that brings it");
  Compiled after;
  after.set(kScale).after.transfers.clear();
  after.rejects(
      "compute set 'scale': field 'y' of 't' on tile 1 misses the exchange that takes it back");
  Compiled copy;
  copy.executable->copies[0].transfers.clear();
  copy.rejects("copy 'result' moves 0 of 8 elements");
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
  x.rejects("compute set 'sum': field 'a' of 't' on tile 0 lies on tile 1");
}

TEST(Check, FindsAFieldOutsideItsMemory) {
  Compiled x;
  x.place_of(kSum, 2).offset = x.executable->arena_bytes.at(0);
  x.rejects("compute set 'sum': field 'y' of 'u' on tile 0 ends at byte");
}

TEST(Check, FindsAFieldBesideItsVariable) {
  Compiled x;
  std::swap(x.place_of(kSum, 0), x.place_of(kSum, 2));
  x.rejects("compute set 'sum': field 'a' of 't' on tile 0 misses the exchange that brings it");
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
  same.piece_of(kU).offset = same.piece_of(kT).offset;
  same.rejects("overlap on tile 0 while both are alive");
  Compiled partly;
  partly.piece_of(kU).offset = partly.piece_of(kT).offset + 28;
  partly.rejects("overlap on tile 0 while both are alive");
}

TEST(Check, LetsPiecesShareBytesOneAfterAnother) {
  Compiled x;
  Piece& landing = x.c.pieces.back();  // of scale on tile 1, beside the landing of nothing else
  EXPECT_TRUE(landing.landing);
  Piece later = landing;
  later.first = later.last = landing.last + 1;
  x.c.pieces.push_back(later);
  EXPECT_NO_THROW(check(x.c));
  x.c.pieces.back().first = x.c.pieces[x.c.pieces.size() - 2].last;
  x.rejects("'t' and 't' overlap on tile 1 while both are alive");
}

}  // namespace
}  // namespace tessera::compiler
