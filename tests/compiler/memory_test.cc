// Liveness, placement, and the memory report.
#include <gtest/gtest.h>
#include <tessera/machine.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "program/sizes.h"
#include "support/number_of.h"
#include "support/random_program.h"
#include "support/toy_codelets.h"
#include "support/toy_machine.h"

namespace tessera::compiler {
namespace {

using program::ComputeSet;
using program::Phase;
using program::PhaseTimes;
using program::Program;
using program::Role;
using program::StepId;
using program::VariableId;
using testing::field;
using testing::toy_machine;
using testing::variable;
using testing::vertex;

constexpr program::Box kWhole{0, 4, 0, 8};
constexpr uint64_t kBytes = 4 * 8 * 4;

/// A program of temporaries of 128 bytes each on tile 0.
struct Temporaries {
  Program program;
  std::vector<VariableId> t;

  explicit Temporaries(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i)
      t.push_back(program.add(variable("t", Type::f32, 4, 8, Role::temporary, 0)));
  }
  StepId fill(uint32_t i) { return testing::execute(program, testing::fill_codelet, {t[i]}, {int64_t{1}}); }
  StepId add(uint32_t a, uint32_t b, uint32_t y) {
    return testing::execute(program, testing::add_codelet, {t[a], t[b], t[y]});
  }
  std::shared_ptr<const Executable> compile(std::vector<StepId> steps) {
    program.set_main(program.sequence(std::move(steps)));
    return compiler::compile(program, toy_machine(1));
  }
  static uint64_t arena(const Executable& e) { return e.arena_bytes.at(0); }
};

TEST(TileMemory, NamesUsesThatHaveBytes) {
  TileMemory memory;
  EXPECT_EQ(memory.total(), 0U);
  EXPECT_EQ(memory.always_live(), 0U);
  EXPECT_TRUE(memory.categories().empty());
  EXPECT_TRUE(memory.by_purpose().empty());
  memory.add(MemoryUse::inputs, program::Purpose::parameter, 1);
  memory.add(MemoryUse::temporaries, program::Purpose::activation, 2);
  EXPECT_EQ(memory.total(), 3U);
  EXPECT_EQ(memory.always_live(), 1U);
  EXPECT_EQ(memory.categories(), (Categories{{"inputs", 1}, {"temporaries", 2}}));
  EXPECT_EQ(memory.by_purpose(), (Categories{{"activation", 2}, {"parameter", 1}}));
}

TEST(Placement, TemporariesThatAreNotAliveTogetherShareBytes) {
  Temporaries p(6);
  const auto e =
      p.compile({p.fill(0), p.add(0, 0, 1), p.add(1, 1, 2), p.add(2, 2, 3), p.add(3, 3, 4), p.add(4, 4, 5)});
  EXPECT_EQ(Temporaries::arena(*e), 2 * kBytes);
  EXPECT_EQ(e->memory.fullest.at("temporaries"), 2 * kBytes);
}

TEST(Placement, TemporariesThatAreAliveTogetherDoNot) {
  Temporaries p(4);
  const auto e = p.compile({p.fill(0), p.fill(1), p.fill(2), p.add(0, 1, 3), p.add(2, 3, 3)});
  EXPECT_EQ(Temporaries::arena(*e), 4 * kBytes);
}

TEST(Placement, VariablesThatAreNeverTouchedTakeNoBytes) {
  Temporaries p(3);
  EXPECT_EQ(Temporaries::arena(*p.compile({p.fill(1)})), kBytes);
}

TEST(Liveness, WhatAPassLeavesToTheNextLivesDuringTheWholeLoop) {
  // Each pass reads t0 of the preceding one: t1 and t2, written in between, must not share its bytes.
  Temporaries carried(3);
  const StepId body = carried.program.sequence({carried.add(0, 0, 1), carried.fill(2), carried.add(1, 2, 0)});
  EXPECT_EQ(Temporaries::arena(*carried.compile({carried.fill(0), carried.program.repeat(3, body)})),
            3 * kBytes);
  // If the loop does not run again, nothing is carried from pass to pass.
  Temporaries once(3);
  const StepId single = once.program.sequence({once.add(0, 0, 1), once.fill(2), once.add(1, 2, 0)});
  EXPECT_EQ(Temporaries::arena(*once.compile({once.fill(0), once.program.repeat(1, single)})), 3 * kBytes);
  Temporaries written(3);
  const StepId kills =
      written.program.sequence({written.fill(0), written.add(0, 0, 1), written.add(1, 1, 2)});
  EXPECT_EQ(Temporaries::arena(*written.compile({written.program.repeat(3, kills)})), 2 * kBytes);
}

TEST(Liveness, ALoopOfOnePassLeavesNothingToTheNext) {
  // t0 is read first: only another pass needs it after that.
  for (const auto& [times, live] : {std::pair(1U, 2U), {2U, 3U}}) {
    Temporaries p(3);
    const StepId body = p.program.sequence({p.add(0, 0, 1), p.fill(2), p.add(1, 2, 1)});
    EXPECT_EQ(Temporaries::arena(*p.compile({p.fill(0), p.program.repeat(times, body)})), live * kBytes);
  }
}

TEST(Liveness, WhatIsReadAfterALoopLivesThroughIt) {
  Temporaries p(4);
  const StepId body = p.program.sequence({p.fill(1), p.add(1, 1, 2)});
  EXPECT_EQ(Temporaries::arena(*p.compile({p.fill(0), p.program.repeat(3, body), p.add(0, 0, 3)})),
            3 * kBytes);
  // The result of the last pass, after an earlier one was overwritten.
  Temporaries q(3);
  const StepId fills = q.program.sequence({q.fill(1), q.fill(0)});
  EXPECT_EQ(Temporaries::arena(*q.compile({q.program.repeat(3, fills), q.add(0, 0, 2)})), 2 * kBytes);
}

TEST(Liveness, LoopsWithinLoopsKeepWhatTheOuterOneNeeds) {
  Temporaries p(3);
  const StepId inner = p.program.repeat(2, p.add(0, 0, 1));
  const StepId outer = p.program.repeat(2, p.program.sequence({inner, p.fill(2), p.add(2, 2, 1)}));
  EXPECT_EQ(Temporaries::arena(*p.compile({p.fill(0), outer})), 3 * kBytes);
}

/// A chain of `length` additions, with two arrays alive at a time.
StepId chain(Temporaries& p, uint32_t first, uint32_t length) {
  std::vector<StepId> steps = {p.fill(first)};
  for (uint32_t i = first; i + 1 < first + length; ++i) steps.push_back(p.add(i, i, i + 1));
  return p.program.sequence(std::move(steps));
}

TEST(Liveness, ALoopOfManyPassesTakesTheMemoryOfOne) {
  uint64_t bytes[2];
  for (const bool many : {false, true}) {
    Temporaries p(10);
    const StepId body = chain(p, 0, 10);
    bytes[many] = p.compile({many ? p.program.repeat(100, body) : body})->memory.max_tile_bytes;
  }
  EXPECT_EQ(bytes[0], bytes[1]);
}

TEST(Liveness, AFunctionsTemporariesLiveDuringEachCallOnly) {
  uint64_t arena[2];
  uint64_t code[2];
  for (const uint32_t calls : {1, 24}) {
    Temporaries p(12);
    const auto function = p.program.add(program::Function{"f", chain(p, 0, 10)});
    std::vector<StepId> steps;
    for (uint32_t i = 0; i < calls; ++i) {
      steps.push_back(p.program.add(program::Step{program::Call{function}}));
      steps.push_back(chain(p, 10, 2));  // which uses the function's memory between its calls
    }
    const auto e = p.compile(std::move(steps));
    arena[calls > 1] = Temporaries::arena(*e);
    code[calls > 1] = e->memory.tiles[0][MemoryUse::vertex_code];
  }
  EXPECT_EQ(arena[0], 2 * kBytes);
  EXPECT_EQ(arena[1], 2 * kBytes);
  EXPECT_EQ(code[0], code[1]);
}

TEST(Liveness, WhatLiesAcrossACallIsSpared) {
  Temporaries p(4);
  const auto function =
      p.program.add(program::Function{"f", p.program.sequence({p.fill(1), p.add(1, 1, 2)})});
  const auto call = [&] { return p.program.add(program::Step{program::Call{function}}); };
  EXPECT_EQ(Temporaries::arena(*p.compile({p.fill(0), call(), p.add(0, 0, 3), call()})), 3 * kBytes);
  EXPECT_EQ(Temporaries::arena(*p.compile({call(), p.fill(0), p.add(0, 0, 3), call()})), 2 * kBytes);
}

/// A temporary of one u32 on tile 0.
VariableId flag(Temporaries& p) {
  return p.program.add(variable("flag", Type::u32, 1, 1, Role::temporary, 0));
}

StepId set(Temporaries& p, VariableId flag) {
  return testing::execute(p.program, testing::fill_codelet, {flag}, {int64_t{1}});
}

TEST(Liveness, BranchesExcludeOneAnother) {
  Temporaries p(6);
  const VariableId condition = flag(p);
  const StepId then = p.program.sequence({p.fill(0), p.add(0, 0, 1), p.add(0, 1, 5)});
  const StepId otherwise = p.program.sequence({p.fill(2), p.add(2, 2, 3), p.add(2, 3, 5)});
  const StepId branch = p.program.add(program::Step{program::If{condition, then, otherwise}});
  const auto e = p.compile({set(p, condition), branch, p.add(5, 5, 4)});
  EXPECT_EQ(Temporaries::arena(*e), 3 * kBytes);
}

TEST(Liveness, AConditionLivesUntilItIsRead) {
  // A variable written in between must not share its bytes, wherever the flag is read.
  const auto check = [](auto step_that_reads, uint64_t outside = 0) {
    Temporaries p(3);
    const VariableId condition = flag(p);
    const StepId reads = step_that_reads(p, condition);
    EXPECT_EQ(
        Temporaries::arena(*p.compile({set(p, condition), p.fill(0), p.add(0, 0, 1), p.fill(0), reads})),
        2 * kBytes + 4 + outside);
  };
  check([](Temporaries& p, VariableId c) {
    return p.program.add(program::Step{program::If{c, program::kNoStep, program::kNoStep}});
  });
  check([](Temporaries& p, VariableId c) {
    return p.program.add(program::Step{program::While{program::kNoStep, c, program::kNoStep}});
  });
  check(
      [](Temporaries& p, VariableId c) {
        const auto x = p.program.add(variable("x", Type::f32, 4, 8, Role::input, 0));
        const auto y = p.program.add(variable("y", Type::f32, 4, 8, Role::output, 0));
        const program::BoxSeries row = program::BoxSeries::same({0, 1, 0, 8});
        return p.program.copy({"row", {{x, y, 1, row, row, {}, program::RuntimeRow{c, 1}, {}}}});
      },
      2 * kBytes);
}

TEST(Liveness, ACounterLivesWhileItIsRead) {
  Temporaries p(2);
  const VariableId counter = flag(p);
  const auto x = p.program.add(variable("x", Type::f32, 4, 8, Role::input, 0));
  const auto y = p.program.add(variable("y", Type::f32, 4, 8, Role::output, 0));
  const program::BoxSeries row = program::BoxSeries::same({0, 1, 0, 8});
  const StepId move = p.program.copy({"row", {{x, y, 1, row, row, {}, program::RuntimeRow{counter, 1}, {}}}});
  const StepId body = p.program.sequence({p.fill(0), p.add(0, 0, 1), move});
  EXPECT_EQ(Temporaries::arena(*p.compile({p.program.repeat(3, body, counter)})), 4 * kBytes + 4);
}

TEST(Liveness, WhatIsWrittenInPartsLivesFromTheFirst) {
  Temporaries p(3);
  const auto fill_half = [&](uint32_t row) {
    return testing::execute(p.program, testing::fill_codelet, {field(p.t[0], {row, 2, 0, 8})}, {int64_t{1}});
  };
  EXPECT_EQ(
      Temporaries::arena(*p.compile({fill_half(0), p.fill(1), p.add(1, 1, 2), fill_half(2), p.add(0, 0, 2)})),
      3 * kBytes);
}

TEST(Liveness, LandingBuffersLiveForTheirSuperstepOnly) {
  Program p;
  const auto x = p.add(variable("x", Type::f32, 4, 8, Role::input, 0));
  const auto y = p.add(variable("y", Type::f32, 1, 1, Role::output, 1));
  const auto z = p.add(variable("z", Type::f32, 1, 1, Role::output, 1));
  const auto sum = [&](VariableId to) { return testing::execute(p, testing::sum_codelet, {x, to}, {}, 1); };
  p.set_main(p.repeat(2, p.sequence({sum(y), sum(z)})));
  const auto e = compile(p, toy_machine(2));
  EXPECT_LE(e->arena_bytes.at(1), kBytes + 2 * 8);
  EXPECT_GE(e->arena_bytes.at(1), kBytes + 2 * 4);
}

/// A staging buffer of 128 bytes on tile 0, which lives for one superstep even in a loop.
StepId land(Temporaries& p) {
  const auto x = p.program.add(variable("x", Type::f32, 4, 8, Role::input, 1));
  const auto z = p.program.add(variable("z", Type::f32, 1, 1, Role::temporary, 1));
  return testing::execute(p.program, testing::sum_codelet, {x, z});
}

TEST(Liveness, AStagingBufferSparesWhatTheNextPassReads) {
  constexpr uint64_t kStaging = kBytes + 4;  // x, and z on its way back
  Temporaries late(2);
  const StepId pass = late.program.sequence({late.add(0, 0, 1), late.fill(0), land(late)});
  late.program.set_main(late.program.repeat(2, pass));
  EXPECT_GE(compile(late.program, toy_machine(2))->arena_bytes.at(0), kBytes + kStaging);
  Temporaries nested(2);
  const StepId inner = nested.program.repeat(2, nested.add(0, 0, 1));
  const StepId outer = nested.program.sequence({inner, land(nested)});
  nested.program.set_main(nested.program.sequence({nested.fill(0), nested.program.repeat(2, outer)}));
  EXPECT_GE(compile(nested.program, toy_machine(2))->arena_bytes.at(0), kBytes + kStaging);
}

TEST(Placement, PiecesOfTheHostBeginAtCacheLines) {
  Program p;
  std::vector<StepId> steps;
  std::vector<program::Field> t;
  for (int i = 0; i < 3; ++i) {
    t.push_back(
        field(p.add(variable("t", Type::f32, 1, 3, Role::temporary, program::kShared)), {0, 1, 0, 3}));
    steps.push_back(testing::execute(p, testing::fill_codelet, {t.back()}, {int64_t{1}}));
  }
  for (const int i : {0, 1}) steps.push_back(testing::execute(p, testing::accumulate_codelet, {t[i], t[2]}));
  p.set_main(p.repeat(2, p.sequence(std::move(steps))));
  const auto e = compile(p, testing::toy_host(2));
  EXPECT_EQ(e->arena_bytes.at(program::kShared), 64u + 64 + 12);
}

/// Addresses of the fields of the first vertex of set 0, in its tile's memory.
std::vector<uint64_t> addresses(const Executable& e) {
  const CompiledSet& set = e.sets[0];
  std::vector<uint64_t> all;
  for (size_t f = 0; f < e.program->compute_sets()[0].groups[0].fields.size(); ++f) {
    const BoxAddress& place = set.places[set.vertices[0].first_place + f];
    all.push_back(e.addresses[place.space].of(place.offset));
  }
  return all;
}

/// y = a - b on tile 0, where a begins after a single element.
Program subtraction(uint32_t rows, uint32_t cols) {
  Program p;
  const auto first = p.add(variable("first", Type::f32, 1, 1, Role::input, 0));
  const auto a = p.add(variable("a", Type::f32, rows + 1, cols, Role::input, 0));
  const auto b = p.add(variable("b", Type::f32, rows, cols, Role::input, 0));
  const auto y = p.add(variable("y", Type::f32, rows, cols, Role::output, 0));
  const program::Box inside{1, rows, 0, cols};
  p.set_main(p.sequence({testing::execute(p, testing::subtract_codelet, {field(a, inside), b, y}),
                         testing::execute(p, testing::accumulate_codelet, {first, y})}));
  return p;
}

TEST(Placement, HonoursAlignmentsAndTheInterleavedRegion) {
  const auto e = compile(subtraction(3, 5), testing::toy_machine_with_regions(1));
  const std::vector<uint64_t> at = addresses(*e);
  EXPECT_EQ(at[0] % 16, 0u);
  EXPECT_EQ(at[1] % 8, 0u);
  EXPECT_EQ(at[2] % 32, 0u);
  EXPECT_GE(at[2], uint64_t{32} << 10);
  EXPECT_LT(at[0], uint64_t{32} << 10);
  EXPECT_GE(at[0], e->memory.tiles[0][MemoryUse::vertex_code] + e->memory.tiles[0][MemoryUse::stack]);
  EXPECT_TRUE(e->memory.fits());
  EXPECT_LT(e->arena_bytes.at(0), 1000u);  // the gap between the regions takes no memory here
}

TEST(Placement, CopiesWhatLiesMisalignedOnItsOwnTile) {
  // a begins five elements into its piece, which is no multiple of 16 bytes.
  const auto e = compile(subtraction(3, 5), toy_machine(1));
  EXPECT_EQ(e->sets[0].before.transfers.size(), 1u);
  EXPECT_EQ(e->memory.fullest.at("staging buffers"), 3u * 5 * 4);
  EXPECT_EQ(e->set_cycles[0][Phase::exchange], 3 * 5 * 4 / 8.0);
  EXPECT_TRUE(compile(subtraction(3, 4), toy_machine(1))->sets[0].before.empty());
}

TEST(Placement, KeepsOverReadSpaceAfterAField) {
  const auto e = compile(subtraction(4, 4), toy_machine(1));
  const std::vector<uint64_t> at = addresses(*e);
  for (const uint64_t other : {at[0], at[2]})
    EXPECT_TRUE(other + 64 <= at[1] || other >= at[1] + 64 + 32) << at[1] << " " << other;
  EXPECT_GE(e->memory.fullest.at("padding"), 32u);
}

/// Fields with mixed demands, three of which want the interleaved region.
constexpr std::array kMixed = {
    program::FieldSpec{.name = "a", .alignment = 8, .interleaved = true, .over_read = 4},
    program::FieldSpec{.name = "b", .alignment = 64, .interleaved = true, .over_read = 32},
    program::FieldSpec{.name = "c", .alignment = 16, .over_read = 12},
    program::FieldSpec{.name = "y", .access = program::Access::out, .alignment = 32, .interleaved = true}};

TEST(Placement, PiecesOfMixedDemandsLieApartAndWhereTheyMust) {
  program::Codelet mixed = testing::subtract_codelet;
  mixed.fields = kMixed;
  const machine::Machine m = testing::toy_machine_with_regions(1);
  for (const program::Role role : {program::Role::temporary, program::Role::inout})
    for (uint32_t odd = 1; odd < 40; odd += 3) {
      SCOPED_TRACE(odd);
      Program p;
      std::vector<testing::Taken> fields;
      std::vector<uint64_t> rooms;
      for (size_t f = 0; f < kMixed.size(); ++f) {
        const auto cols = static_cast<uint32_t>(odd + 7 * f);
        fields.push_back(p.add(variable("v", Type::f32, 1, cols, role, 0)));
        rooms.push_back(cols * 4 + kMixed[f].over_read);
      }
      p.set_main(testing::execute(p, mixed, fields));
      const auto e = compile(p, m);
      const std::vector<uint64_t> at = addresses(*e);
      for (size_t f = 0; f < at.size(); ++f) {
        EXPECT_EQ(at[f] % kMixed[f].alignment, 0u) << f;
        EXPECT_EQ(at[f] >= m.interleaved_from, kMixed[f].interleaved) << f;
        EXPECT_LE(at[f] + rooms[f], m.tile_bytes) << f;
        for (size_t g = 0; g < f; ++g)
          EXPECT_TRUE(at[f] + rooms[f] <= at[g] || at[g] + rooms[g] <= at[f]) << f << " and " << g;
      }
    }
}

/// Places on tiles, and the bytes in use. Streaming memory differs with the chips.
std::pair<std::vector<BoxAddress>, std::map<program::TileId, uint64_t>> on_tiles(const Executable& e) {
  std::vector<BoxAddress> places;
  for (const std::vector<BoxAddress>& boxes : e.mapped)
    std::ranges::copy_if(boxes, std::back_inserter(places),
                         [](const BoxAddress& place) { return place.tile() < program::kStreaming; });
  std::map<program::TileId, uint64_t> bytes = e.arena_bytes;
  std::erase_if(bytes, [](const auto& own) { return own.first >= program::kStreaming; });
  return {places, bytes};
}

TEST(Placement, TilesHaveTheAddressesThatTheyHaveOnChipsOfTheirOwn) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const Program p = testing::random_program(seed, {.tiles = 4});
    const auto apart = compile(p, testing::toy_chips(2, 2)), together = compile(p, toy_machine(4));
    EXPECT_TRUE(on_tiles(*apart) == on_tiles(*together));
    for (program::TileId tile = 0; tile < 4; ++tile)
      EXPECT_EQ(apart->memory.tiles[tile].purposes, together->memory.tiles[tile].purposes) << tile;
  }
}

/// Enough pieces for two threads to place them.
TEST(Placement, ThreadsPlaceChipsAsOneThreadPlacesTiles) {
  constexpr uint32_t kSteps = 50, kRows = 400;
  Program p;
  std::vector<StepId> steps;
  for (uint32_t step = 0; step < kSteps; ++step)
    for (const program::TileId tile : {0U, 1U}) {
      program::Variable v = variable("v", Type::f32, kRows, 4, Role::temporary, tile);
      v.mapping.clear();
      std::vector<program::Box> boxes;
      for (uint32_t r = 0; r < kRows; ++r) {
        const uint32_t cut = 1 + (r + step + tile) % 3;
        for (const program::Box box : {program::Box{r, 1, 0, cut}, program::Box{r, 1, cut, 4 - cut}}) {
          boxes.push_back(box);
          v.mapping.push_back({box, tile});
        }
      }
      const VariableId id = p.add(std::move(v));
      program::VertexGroup group{&testing::fill_codelet,
                                 tile,
                                 1,
                                 2 * kRows,
                                 {{id, program::BoxSeries::table(std::move(boxes))}},
                                 {int64_t{1}}};
      steps.push_back(p.execute(ComputeSet{"set", Phase::compute, {std::move(group)}}));
    }
  p.set_main(p.sequence(std::move(steps)));
  set_default_threads(2);
  const auto apart = compile(p, testing::toy_chips(2, 1)), together = compile(p, toy_machine(2));
  set_default_threads(0);
  EXPECT_TRUE(on_tiles(*apart) == on_tiles(*together));
}

/// 10^5 boxes of different sizes on a tile, a hundred written in each superstep and read ten later.
TEST(Placement, TakesASecondForAHundredThousandPieces) {
#ifdef NDEBUG
  constexpr double kMostSeconds = 1;
#else
  constexpr double kMostSeconds = 15;  // without optimisation, and under a sanitizer
#endif
  constexpr uint32_t kRows = 50'000;
  constexpr uint32_t kInSet = 50;  // rows of two boxes
  constexpr uint32_t kSets = kRows / kInSet;
  Program p;
  program::Variable v = variable("v", Type::f32, kRows, 64, Role::temporary, 0);
  v.mapping.clear();
  std::vector<program::Box> boxes;
  for (uint32_t r = 0; r < kRows; ++r) {
    const uint32_t cut = 1 + (r * 2654435761U >> 8) % 63;
    for (const program::Box box : {program::Box{r, 1, 0, cut}, program::Box{r, 1, cut, 64 - cut}}) {
      boxes.push_back(box);
      v.mapping.push_back({box, 0});
    }
  }
  const VariableId id = p.add(std::move(v));
  const VariableId y = p.add(variable("y", Type::f32, 1, 2 * kInSet, Role::output, 0));
  const auto set_of = [&](const program::Codelet& codelet, uint32_t set, bool reads) {
    const auto first = boxes.begin() + 2 * kInSet * set;
    program::VertexGroup group{
        &codelet, 0, 1, 2 * kInSet, {{id, program::BoxSeries::table({first, first + 2 * kInSet})}}, {}};
    if (reads)
      group.fields.push_back({y, program::BoxSeries::stepped({0, 1, 0, 1}, {0, 1})});
    else
      group.params.push_back(int64_t{1});
    return p.execute(ComputeSet{"set", Phase::compute, {std::move(group)}});
  };
  std::vector<StepId> steps;
  for (uint32_t s = 0; s < kSets + 10; ++s) {
    if (s < kSets) steps.push_back(set_of(testing::fill_codelet, s, false));
    if (s >= 10) steps.push_back(set_of(testing::sum_codelet, s - 10, true));
  }
  p.set_main(p.sequence(std::move(steps)));
  double seconds[2] = {1e9, 1e9};  // of a core: placement and check, the better of two runs
  for (int run = 0; run < 2; ++run) {
    const std::clock_t start = std::clock();
    const auto e = compile(p, toy_machine(1));
    const double cpu = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    double wall = 0;
    for (const PassRecord& pass : e->passes) wall += pass.seconds;
    for (const PassRecord& pass : e->passes)
      if (pass.name == "placement" || pass.name == "check") {
        double& best = seconds[pass.name == "check"];
        best = std::min(best, cpu * pass.seconds / wall);
      }
    const uint64_t alive = e->memory.tiles[0][MemoryUse::temporaries];
    EXPECT_LE(alive, 12u * kInSet * 64 * 4);
    EXPECT_LE(e->memory.tiles[0][MemoryUse::padding], alive / 4);
  }
  RecordProperty("placement", std::to_string(seconds[0]));
  RecordProperty("check", std::to_string(seconds[1]));
  EXPECT_LE(seconds[0], kMostSeconds);
  EXPECT_LE(seconds[1], kMostSeconds);
}

TEST(Placement, ARegionOverflowsByItself) {
  // y takes 40 KiB, and 32 KiB are interleaved; a and b would leave enough memory.
  const machine::Machine m = testing::toy_machine_with_regions(1, 64 << 10);
  const auto e = compile(subtraction(10, 1024), m);
  EXPECT_FALSE(e->memory.fits());
  const auto f = compile(subtraction(4, 1024), m);
  EXPECT_TRUE(f->memory.fits()) << overflow_text(f->memory);
  EXPECT_EQ(f->memory.tiles[0].total(), f->memory.tiles[0].end);
}

TEST(Placement, OrdinaryPiecesMayLieAcrossTheRegions) {
  Program p;
  const auto t = p.add(variable("t", Type::f32, 10, 1024, Role::temporary, 0));
  p.set_main(testing::execute(p, testing::fill_codelet, {t}, {int64_t{1}}));
  EXPECT_TRUE(compile(p, testing::toy_machine_with_regions(1, 64 << 10))->memory.fits());
}

/// By size, z comes last: of the hole above x, it finds the bytes taken by q in the second step.
TEST(Placement, WhatIsAliveLongestComesFirstWhereATileOverflowsOtherwise) {
  Program p;
  const auto add = [&](const char* name, uint32_t units, Role role = Role::temporary) {
    return p.add(variable(name, Type::f32, 4 * units, 8, role, 0));
  };
  const VariableId q = add("q", 11), x = add("x", 10), y = add("y", 9), r = add("r", 2), z = add("z", 1);
  const VariableId sum_y = add("sum of y", 1, Role::output), sum_z = add("sum of z", 1, Role::output);
  const auto whole = [&](VariableId id) { return field(id, p.variable(id).whole()); };
  const auto fill = [&](VariableId id) {
    return vertex(testing::fill_codelet, 0, {whole(id)}, {int64_t{1}});
  };
  const auto sum = [&](VariableId of, VariableId to) {
    return vertex(testing::sum_codelet, 0, {whole(of), whole(to)});
  };
  p.set_main(
      p.sequence({p.execute(ComputeSet{"first", Phase::compute, {fill(x), fill(y), fill(r), fill(z)}}),
                  p.execute(ComputeSet{"second", Phase::compute, {fill(q), sum(y, sum_y), sum(z, sum_z)}})}));
  const auto roomy = compile(p, toy_machine(1));
  const auto tight = compile(p, toy_machine(1, roomy->memory.max_tile_bytes - kBytes));
  EXPECT_TRUE(tight->memory.fits()) << overflow_text(tight->memory);
  EXPECT_EQ(Temporaries::arena(*roomy), (11 + 9 + 2 + 1 + 2) * kBytes);
  EXPECT_EQ(Temporaries::arena(*tight), (10 + 9 + 2 + 1 + 2) * kBytes);
}

/// y += w with w a state on another tile, by way of temporaries that live one after another.
TEST(Memory, CountsDataByPurpose) {
  Program p;
  const auto x = p.add(variable("x", Type::f32, 4, 8, Role::input, 0));
  const auto w = p.add(variable("w", Type::f32, 4, 8, Role::state, 1));
  const auto y = p.add(variable("y", Type::f32, 4, 8, Role::output, 0));
  program::Variable kept = variable("kept", Type::f32, 4, 8, Role::temporary, 0);
  kept.purpose = program::Purpose::stash;
  const auto stash = p.add(kept);
  p.set_main(p.sequence({testing::execute(p, testing::add_codelet, {x, x, stash}),
                         testing::execute(p, testing::add_codelet, {stash, w, y})}));
  const auto e = compile(p, toy_machine(2));
  const MemoryReport& memory = e->memory;
  EXPECT_EQ(memory.tiles[1][MemoryUse::state], kBytes);
  EXPECT_EQ(memory.tiles[1][program::Purpose::parameter], kBytes);
  EXPECT_EQ(memory.tiles[0][program::Purpose::parameter], kBytes);  // brought by the exchange
  EXPECT_EQ(memory.tiles[0][program::Purpose::stash], kBytes);
  EXPECT_EQ(memory.tiles[0][program::Purpose::activation], 2 * kBytes);
  EXPECT_EQ(memory.total_purposes,
            (Categories{{"activation", 2 * kBytes}, {"parameter", 2 * kBytes}, {"stash", kBytes}}));
  EXPECT_EQ(memory.fullest_purposes,
            (Categories{{"activation", 2 * kBytes}, {"parameter", kBytes}, {"stash", kBytes}}));
}

/// A gradient that is not alive at the peak has no bytes: only the temporaries of one step count.
TEST(Memory, CountsThePurposesOfThePeakOnly) {
  for (const uint32_t scratch_rows : {2U, 16U}) {
    Program p;
    const auto y = p.add(variable("y", Type::f32, 4, 8, Role::output, 0));
    const auto scratch = p.add(variable("scratch", Type::f32, scratch_rows, 8, Role::temporary, 0));
    program::Variable dw = variable("dw", Type::f32, 4, 8, Role::temporary, 0);
    dw.purpose = program::Purpose::gradient;
    const auto gradient = p.add(dw);
    const auto fill = [&](const char* name, program::VariableId id, const program::Box& box) {
      return p.execute(ComputeSet{
          name, Phase::compute, {vertex(testing::fill_codelet, 0, {field(id, box)}, {int64_t{1}})}});
    };
    p.set_main(
        p.sequence({fill("forward", scratch, {0, scratch_rows, 0, 8}), fill("backward", gradient, kWhole),
                    testing::execute(p, testing::add_codelet, {gradient, gradient, y})}));
    const TileMemory memory = compile(p, toy_machine(1))->memory.tiles[0];
    const bool gradient_is_at_peak = scratch_rows == 2;
    EXPECT_EQ(memory[program::Purpose::gradient], gradient_is_at_peak ? kBytes : 0);
    EXPECT_EQ(memory[program::Purpose::activation], kBytes + (gradient_is_at_peak ? 0 : scratch_rows * 32));
  }
}

TEST(Memory, DataOfRandomProgramsHaveAPurposeEach) {
  for (uint64_t seed = 0; seed < test::number_of_cases(40, 100); ++seed)
    for (const machine::Machine& m : {toy_machine(3), testing::toy_host(2)}) {
      const auto e = compile(testing::random_program(seed, {m.tiles, m.has_shared_space()}), m);
      for (const TileMemory& tile : e->memory.tiles) {
        uint64_t by_purpose = 0;
        for (uint64_t bytes : tile.purposes) by_purpose += bytes;
        uint64_t by_use = tile.total();
        for (MemoryUse use : {MemoryUse::vertex_state, MemoryUse::vertex_code, MemoryUse::control_code,
                              MemoryUse::exchange_code, MemoryUse::stack, MemoryUse::padding})
          by_use -= tile[use];
        ASSERT_EQ(by_purpose, by_use) << "seed " << seed;
      }
    }
}

TEST(Memory, TheStackOfATileIsThatOfItsDeepestCodelet) {
  program::Codelet shallow = testing::fill_codelet, deep = testing::add_codelet;
  shallow.stack_bytes = 40;
  deep.stack_bytes = 100;
  Program p;
  const auto x = p.add(variable("x", Type::f32, 4, 8, Role::temporary, 0));
  const auto y = p.add(variable("y", Type::f32, 4, 8, Role::output, 0));
  const auto z = p.add(variable("z", Type::f32, 4, 8, Role::output, 1));
  p.set_main(
      p.sequence({testing::execute(p, shallow, {x}, {int64_t{1}}), testing::execute(p, deep, {x, x, y}),
                  testing::execute(p, testing::fill_codelet, {z}, {int64_t{1}}, 1)}));
  const std::vector<TileMemory> tiles = compile(p, toy_machine(3))->memory.tiles;
  EXPECT_EQ(tiles[0][MemoryUse::stack], program::kStackBytes + 100);
  EXPECT_EQ(tiles[1][MemoryUse::stack], program::kStackBytes);
  EXPECT_EQ(tiles[2][MemoryUse::stack], program::kStackBytes);
}

TEST(Memory, OverflowOfATileIsAnAnswer) {
  Program p;
  const auto small = p.add(variable("small", Type::f32, 4, 8, Role::input, 0));
  const auto large = p.add(variable("large", Type::f32, 64, 64, Role::output, 1));
  p.set_main(testing::execute(p, testing::accumulate_codelet, {small, large}, {}, 1));
  const auto e = compile(p, toy_machine(3, 8192));
  EXPECT_FALSE(e->memory.fits());
  EXPECT_EQ(e->memory.fullest_tile, 1u);
  EXPECT_EQ(e->memory.tile_capacity_bytes, 8192u);
  EXPECT_EQ(e->memory.fullest.at("outputs"), 64u * 64 * 4);
  EXPECT_EQ(e->memory.fullest.at("staging buffers"), kBytes);  // small
  EXPECT_EQ(e->memory.total.at("inputs"), kBytes);
  EXPECT_GT(e->memory.fullest.at("vertex state"), 0u);
  EXPECT_GT(e->memory.fullest.at("exchange code"), 0u);
  EXPECT_TRUE(compile(p, toy_machine(3, 65536))->memory.fits());
}

TEST(Memory, OverflowSaysWhichTileByHowMuchAndWhatFillsIt) {
  Program p;
  const auto t = p.add(variable("t", Type::f32, 64, 64, Role::temporary, 2));
  p.set_main(testing::execute(p, testing::fill_codelet, {t}, {int64_t{1}}, 2));
  const auto e = compile(p, toy_machine(3, 16000));
  const std::string text = overflow_text(e->memory);
  EXPECT_EQ(text.rfind("tile 2 needs " + std::to_string(e->memory.max_tile_bytes) +
                           " bytes and has 16000; it holds temporaries 16384, "
                           "stack 3072, ",
                       0),
            0u)
      << text;
}

uint64_t sum_of(const Categories& categories) {
  return std::accumulate(categories.begin(), categories.end(), uint64_t{0},
                         [](uint64_t sum, const auto& entry) { return sum + entry.second; });
}

TEST(Memory, TotalsAreTheSumsOfTheirCategories) {
  for (uint64_t seed = 0; seed < test::number_of_cases(60, 200); ++seed)
    for (const machine::Machine& machine : {toy_machine(3), toy_machine(7), toy_machine(3, 65536, 65536),
                                            testing::toy_host(2), testing::toy_machine_with_regions(5)}) {
      const auto e =
          compile(testing::random_program(seed, {machine.tiles, machine.has_shared_space()}), machine);
      ASSERT_EQ(sum_of(e->memory.total), e->memory.total_bytes) << "seed " << seed;
      ASSERT_EQ(sum_of(e->memory.fullest), e->memory.max_tile_bytes) << "seed " << seed;
      uint64_t arenas = 0;
      for (const auto& [tile, bytes] : e->arena_bytes) arenas += bytes;
      ASSERT_LE(arenas, e->memory.total_bytes) << "seed " << seed;
      uint64_t tiles = e->memory.shared.total();
      for (const TileMemory& tile : e->memory.tiles) {
        tiles += tile.total();
        ASSERT_LE(tile.always_live(), tile.total());
        ASSERT_LE(tile.total(), e->memory.max_tile_bytes);
      }
      ASSERT_EQ(tiles, e->memory.total_bytes) << "seed " << seed;
    }
}

TEST(Account, TheSlowestTileSetsTheCyclesOfASuperstep) {
  Program p;
  const auto x = p.add(variable("x", Type::f32, 8, 8, Role::output, 0));
  const auto y = p.add(variable("y", Type::f32, 8, 8, Role::output, 1));
  const auto fill = [](VariableId v, program::TileId tile, uint32_t row, uint32_t rows) {
    return vertex(testing::fill_codelet, tile, {field(v, {row, rows, 0, 8})}, {int64_t{1}});
  };
  p.set_main(
      p.execute(ComputeSet{"fill", Phase::compute, {fill(x, 0, 0, 8), fill(y, 1, 0, 2), fill(y, 1, 2, 2)}}));
  const auto e = compile(p, toy_machine(2));
  // One cycle per element and per vertex: 65 on tile 0, 17 + 17 on tile 1.
  EXPECT_EQ(e->set_cycles[0][Phase::compute], 65);
  EXPECT_EQ(e->set_cycles[0][Phase::sync], 0);  // nobody waits where nothing is exchanged
  EXPECT_EQ(e->set_cycles[0][Phase::exchange], 0);
}

TEST(Account, WhatASetWritesElsewhereIsTakenBackAtAPrice) {
  Program p;
  const auto t = p.add(variable("t", Type::f32, 4, 8, Role::inout, 0));
  p.set_main(testing::execute(p, testing::scale_codelet, {t}, {int64_t{2}}, 1));
  const auto e = compile(p, toy_machine(4));
  const double once = 20 + kBytes / 4.0;
  EXPECT_EQ(e->sets[0].before.cost.cycles[Phase::exchange], once);
  EXPECT_EQ(e->sets[0].after.cost.cycles[Phase::exchange], once);
  EXPECT_EQ(e->set_cycles[0][Phase::exchange], 2 * once);
  EXPECT_EQ(e->set_cycles[0][Phase::sync], 2 * 10);
  EXPECT_EQ(e->sets[0].after.cost.bytes, kBytes);
  // Two of four tiles take part, for the same time.
  const Balance& exchange = e->sets[0].after.cost.tiles;
  EXPECT_EQ(exchange.least, 0);
  EXPECT_EQ(exchange.most, kBytes / 4.0);
  EXPECT_EQ(exchange.mean, kBytes / 4.0 / 2);
  // One of them computes: both workers wait for the one vertex.
  const Balance& compute = e->sets[0].balance;
  EXPECT_EQ(compute.least, 0);
  EXPECT_EQ(compute.most, 2 * 33);
  EXPECT_EQ(compute.mean, 2 * 33 / 4.0);
}

TEST(Account, AnExchangeLastsAsLongAsItsBusiestTile) {
  Program p;
  const auto x = p.add(variable("x", Type::f32, 4, 8, Role::input, 0));
  const auto y = p.add(variable("y", Type::f32, 4, 8, Role::output, 1));
  p.set_main(p.copy(
      {"move", {{x, y, 1, program::BoxSeries::same(kWhole), program::BoxSeries::same(kWhole), {}, {}, {}}}}));
  const auto e = compile(p, toy_machine(2));
  EXPECT_EQ(e->copies[0].cost.cycles[Phase::sync], 10);
  EXPECT_EQ(e->copies[0].cost.cycles[Phase::exchange], 20 + kBytes / 4.0);
}

/// A copy of rows × 1024 floats on a host of two threads.
PhaseTimes host_copy(uint32_t rows) {
  machine::Machine m = testing::toy_host(2);
  m.clock_hz = 2e9;
  m.figures.ghz = 2;
  m.figures.l2_bytes = 256 << 10;
  m.figures.l3_bytes = 4 << 20;
  m.figures.l2_bytes_per_cycle = 32;
  m.figures.l3_bytes_per_cycle = 8;
  m.figures.memory_core_gbps = 10;
  m.figures.memory_gbps = 16;
  Program p;
  const auto x = p.add(variable("x", Type::f32, rows, 1024, Role::input, program::kShared));
  const auto y = p.add(variable("y", Type::f32, rows, 1024, Role::output, program::kShared));
  const program::BoxSeries all = program::BoxSeries::same({0, rows, 0, 1024});
  p.set_main(p.copy({"copy", {{x, y, 1, all, all, {}, {}, {}}}}));
  return compile(p, m)->copies[0].cost.cycles;
}

TEST(Account, CopiesOfAHostComeFromTheLevelThatHoldsThem) {
  constexpr double kKiB = 1024;
  EXPECT_EQ(host_copy(16)[Phase::exchange], 2 * 64 * kKiB / 32);  // one thread, in its L2 cache
  EXPECT_EQ(host_copy(16)[Phase::sync], 0);
  EXPECT_EQ(host_copy(64)[Phase::exchange], 2 * 128 * kKiB / 32);    // 256 KiB, half of it each
  EXPECT_GT(host_copy(64)[Phase::sync], 0);                          // threads wait for one another
  EXPECT_EQ(host_copy(512)[Phase::exchange], 3 * 1024 * kKiB / 8);   // 2 MiB, and as much written
  EXPECT_EQ(host_copy(1024)[Phase::exchange], 3 * 2048 * kKiB / 4);  // 8 GB/s each at 2 GHz
}

}  // namespace
}  // namespace tessera::compiler
