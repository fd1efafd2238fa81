// Executables saved and loaded: the same program with the same result, and no harm from malicious files.
#include "compiler/executable_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/error.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/checksum.h"
#include "base/random.h"
#include "compiler/compile.h"
#include "engine/engine.h"
#include "engine/externals.h"
#include "io/files.h"
#include "support/bound_arrays.h"
#include "support/error_of.h"
#include "support/number_of.h"
#include "support/random_program.h"
#include "support/reference_interpreter.h"
#include "support/toy_codelets.h"
#include "support/toy_machine.h"

namespace tessera::engine {
namespace {

using compiler::Executable;
using ::testing::AnyOf;
using ::testing::HasSubstr;

const program::Codelet* toy_codelet(std::string_view name) {
  for (const program::Codelet* codelet :
       {&testing::fill_codelet, &testing::add_codelet, &testing::subtract_codelet, &testing::scale_codelet,
        &testing::sum_codelet, &testing::accumulate_codelet, &testing::gather_codelet,
        &testing::increment_codelet, &testing::below_codelet, &testing::odd_codelet})
    if (codelet->name == name) return codelet;
  return nullptr;
}

class ExecutableFile : public ::testing::Test {
 protected:
  std::shared_ptr<const Executable> save(const program::Program& program, const machine::Machine& machine) {
    auto executable = compiler::compile(program, machine);
    compiler::save(*executable, path_);
    return executable;
  }
  std::shared_ptr<const Executable> load(const machine::Machine& machine) {
    return compiler::load(path_, machine, toy_codelet);
  }
  std::string error_of(const machine::Machine& machine) {
    const std::string error = test::error_of([&] { load(machine); });
    EXPECT_THAT(error, AnyOf("(no error)", HasSubstr(path_)));
    return error;
  }

  std::string bytes() const { return test::content_of(path_); }
  void write(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }
  /// The file with a correct checksum of its present contents.
  static std::string resealed(std::string bytes) {
    constexpr size_t kHeader = 20;
    const uint64_t sum = base::checksum(std::as_bytes(std::span(bytes).subspan(kHeader)));
    std::memcpy(&bytes[kHeader - 8], &sum, 8);
    return bytes;
  }

  test::TemporaryFolder folder_;
  const std::string path_ = folder_.file("program");
};

TEST_F(ExecutableFile, RunsAsWhatWasSaved) {
  for (const machine::Machine& machine : {testing::toy_machine(3), testing::toy_machine_with_regions(5),
                                          testing::toy_machine(4, 64 << 10, 1 << 20), testing::toy_host(2)})
    for (uint64_t seed = 0; seed < test::number_of_cases(10, 30); ++seed) {
      SCOPED_TRACE(seed);
      const program::Program program =
          testing::random_program(seed, {machine.tiles, machine.has_shared_space()});
      const auto saved = save(program, machine);
      const auto loaded = load(machine);
      ASSERT_EQ(program::to_string(*loaded->program), program::to_string(program));
      ASSERT_EQ(loaded->known_ahead, saved->known_ahead);
      ASSERT_EQ(loaded->cycles_vary, saved->cycles_vary);
      ASSERT_EQ(loaded->costed_at_run, saved->costed_at_run);
      ASSERT_EQ(loaded->memory.fullest, saved->memory.fullest);
      const testing::FlatVariables initial = testing::flat_variables(program);
      testing::BoundArrays first(program, initial);
      testing::BoundArrays second(program, initial);
      const Profile before = Engine(saved).run(first.bindings(), {.threads = 1});
      const Profile after = Engine(loaded).run(second.bindings(), {.threads = 1});
      ASSERT_EQ(after.cycles.at, before.cycles.at);
      expect_equal(program, second.flat(), first.flat());
      const std::string once = bytes();
      compiler::save(*loaded, path_);
      ASSERT_EQ(bytes(), once);
    }
}

TEST_F(ExecutableFile, IsFoundForAProgramThatIsThere) {
  const machine::Machine machine = testing::toy_machine(3);
  const auto program_of = [](uint64_t seed) {
    return std::make_shared<const program::Program>(testing::random_program(seed, {3, false}));
  };
  for (uint64_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(seed);
    const auto program = program_of(seed);
    const std::vector<std::byte> bytes = compiler::to_bytes(*compiler::compile(program, machine));
    const auto found = compiler::from_bytes(bytes, program, machine);
    EXPECT_EQ(found->program, program);
    EXPECT_TRUE(compiler::to_bytes(*found) == bytes);
    EXPECT_ERROR("the executable of another program",
                 compiler::from_bytes(bytes, program_of(seed + 1), machine));
    EXPECT_ERROR("compiled for a machine with tiles = 3",
                 compiler::from_bytes(bytes, program, testing::toy_machine(4)));
    for (size_t size = 0; size < bytes.size(); size += 97)
      EXPECT_THROW(compiler::from_bytes(std::span(bytes).first(size), program, machine), Error);
  }
}

TEST_F(ExecutableFile, IsForItsMachineOnly) {
  save(testing::random_program(1, {3, false}), testing::toy_machine(3));
  EXPECT_THAT(error_of(testing::toy_machine(4)),
              HasSubstr("compiled for a machine with tiles = 3; 'toy' has 4"));
  EXPECT_THAT(error_of(testing::toy_machine(3, 1000)), HasSubstr("with tile_bytes = 65536; 'toy' has 1000"));
  machine::Machine other = testing::toy_machine(3);
  other.sources.push_back({"sync_cycles", 5, "", ""});
  EXPECT_THAT(error_of(other), HasSubstr("of 6 figures; 'toy' has 7"));
}

TEST_F(ExecutableFile, SaysWhatIsWrongWithIt) {
  const machine::Machine machine = testing::toy_machine(3);
  save(testing::random_program(1, {3, false}), machine);
  const std::string whole = bytes();
  write("");
  EXPECT_THAT(error_of(machine), HasSubstr("it ends early"));
  write("PK\3\4 some other kind of file, as long as a header");
  EXPECT_THAT(error_of(machine), HasSubstr("not a Tessera executable"));
  std::string version = whole;
  version[8] = 77;
  write(version);
  EXPECT_THAT(error_of(machine), HasSubstr("it has format version 77, this build reads 9"));
  std::string damaged = whole;
  damaged.back() ^= 1;
  write(damaged);
  EXPECT_THAT(error_of(machine), HasSubstr("it is damaged"));
  write(resealed(whole + "x"));
  EXPECT_THAT(error_of(machine), HasSubstr("continues after its end"));
  write(whole);
  const auto without = [](std::string_view) -> const program::Codelet* { return nullptr; };
  EXPECT_ERROR("which this build lacks", compiler::load(path_, machine, without));
  std::filesystem::remove(path_);
  EXPECT_THROW(load(machine), Error);
}

/// Damage that no checksum detects: the loaded program may be another one, but must be sound.
/// y gets rows 0, 1 and 2 of x, which lies on another tile.
program::Program row_by_row() {
  program::Program p;
  const auto x = p.add(testing::variable("x", Type::f32, 4, 8, program::Role::input, 0));
  const auto y = p.add(testing::variable("y", Type::f32, 4, 8, program::Role::inout, 1));
  const auto i = p.add(testing::variable("i", Type::u32, 1, 1, program::Role::temporary, 0));
  const program::BoxSeries row = program::BoxSeries::same({0, 1, 0, 8});
  const program::RuntimeRow by_one{i, 1};
  p.set_main(p.repeat(3, p.copy({"rows", {{x, y, 1, row, row, {}, by_one, by_one}}}), i));
  return p;
}

/// Files that are whole, but were written from false executables.
TEST_F(ExecutableFile, WithFalseRowsOrRoomTouchesNoOtherMemory) {
  const machine::Machine machine = testing::toy_machine(2);
  const auto sound = compiler::compile(row_by_row(), machine);
  const auto error_with = [&](const std::function<void(Executable&, compiler::RuntimeRows&)>& change) {
    Executable e = *sound;
    change(e, e.copies[0].runtime_rows.at(0));
    compiler::save(e, path_);
    return error_of(machine);
  };
  EXPECT_EQ(error_with([](Executable&, compiler::RuntimeRows&) {}), "(no error)");
  EXPECT_THAT(error_with([](Executable& e, auto&) { e.arena_bytes[0] -= 8; }), HasSubstr("ends at byte"));
  EXPECT_THAT(error_with([](Executable& e, auto&) { e.arena_bytes.erase(1); }), HasSubstr("ends at byte"));
  EXPECT_THAT(error_with([](Executable& e, auto&) { e.arena_bytes[7] = 8; }), HasSubstr("on tile 7 of 2"));
  EXPECT_THAT(error_with([](Executable& e, auto&) { e.arena_bytes[1] = ~uint64_t{0}; }),
              HasSubstr("on tile 1 of 2"));
  constexpr uint64_t kMost = uint64_t{1} << 42;
  EXPECT_EQ(error_with([](Executable& e, auto&) { e.arena_bytes[1] = kMost; }), "(no error)");
  EXPECT_THAT(error_with([](Executable& e, auto&) { e.arena_bytes[1] = kMost + 1; }),
              HasSubstr("on tile 1 of 2"));
  EXPECT_THAT(error_with([](Executable&, auto& rows) { rows.from.room = 1000; }), HasSubstr("ends at byte"));
  EXPECT_THAT(error_with([](Executable&, auto& rows) { rows.to.room = ~0U; }), HasSubstr("ends at byte"));
  const std::string no_row = "has a run-time row that its program has not";
  EXPECT_THAT(error_with([](Executable&, auto& rows) { rows.from.row->index = 0; }), HasSubstr(no_row));
  EXPECT_THAT(error_with([](Executable&, auto& rows) { rows.to.row->index = 99; }), HasSubstr(no_row));
  EXPECT_THAT(error_with([](Executable&, auto& rows) { rows.to.variable = 99; }), HasSubstr(no_row));
  EXPECT_THAT(error_with([](Executable& e, auto&) { e.copies[0].transfers[0].runtime = 5; }),
              HasSubstr("has no run-time row 5"));

  // Rows further apart than there is room for are found when they are reached.
  ASSERT_EQ(error_with([](Executable&, auto& rows) { rows.from.row->stride = ~0U; }), "(no error)");
  const Engine engine(load(machine));
  std::vector<float> x(32), y(32);
  const std::vector<Binding> bindings = {{0, x.data(), 8, 1}, {1, y.data(), 8, 1}};
  EXPECT_THROW(engine.run(bindings, {.threads = 1}), Error);
}

TEST_F(ExecutableFile, WithFieldsThatMoveFalselyIsRefused) {
  const machine::Machine machine = testing::toy_machine(1);
  program::Program p;
  const auto x = p.add(testing::variable("x", Type::f32, 4, 8, program::Role::inout, 0));
  const auto i = p.add(testing::variable("i", Type::u32, 1, 1, program::Role::temporary, 0));
  const program::BoxSeries row = program::BoxSeries::same({0, 1, 0, 8});
  const auto scale = [&](const program::Field& field) {
    return testing::execute(p, testing::scale_codelet, {field}, {int64_t{2}});
  };
  p.set_main(p.repeat(4, p.sequence({scale({x, row, program::RuntimeRow{i, 1}}), scale({x, row})}), i));
  const auto sound = compiler::compile(p, machine);
  const auto error_with = [&](size_t set, bool moves) {
    Executable e = *sound;
    e.sets[set].places.at(0).moves = moves;
    compiler::save(e, path_);
    return error_of(machine);
  };
  EXPECT_EQ(error_with(0, true), "(no error)");
  EXPECT_THAT(error_with(0, false), HasSubstr("does not move as its run-time row says"));
  EXPECT_THAT(error_with(1, true), HasSubstr("moves without a run-time row"));
}

/// Runs add costs to the clocks of chips, and reports list them by tile.
TEST_F(ExecutableFile, WithCostsOfWhatItsMachineLacksIsRefused) {
  const machine::Machine machine = testing::toy_chips(2, 1);
  program::Program p;
  const auto x = p.add(testing::variable("x", Type::f32, 4, 8, program::Role::inout, 0));
  const auto y = p.add(testing::variable("y", Type::f32, 4, 8, program::Role::output, 1));
  const program::BoxSeries whole = program::BoxSeries::same({0, 4, 0, 8});
  p.set_main(p.sequence({testing::execute(p, testing::scale_codelet, {x}, {int64_t{2}}),
                         p.copy({"copy", {{x, y, 1, whole, whole, {}, {}, {}}}})}));
  const auto sound = compiler::compile(p, machine);
  const auto error_with = [&](const std::function<void(Executable&)>& change) {
    Executable e = *sound;
    change(e);
    compiler::save(e, path_);
    return error_of(machine);
  };
  EXPECT_EQ(error_with([](Executable&) {}), "(no error)");
  const std::string lacking = "costs of tiles or chips that its machine lacks";
  EXPECT_THAT(error_with([](Executable& e) { e.sets[0].chip_cycles.at(0).chip = 99; }), HasSubstr(lacking));
  EXPECT_THAT(error_with([](Executable& e) { e.copies[0].cost.tied.at(0).chips.at(0) = 2; }),
              HasSubstr(lacking));
  EXPECT_THAT(error_with([](Executable& e) { e.sets[0].tile_cycles.push_back(1); }), HasSubstr(lacking));
  const auto with_idle_tile = [](Executable& e) {
    e.sets[0].tiles.push_back(99);
    e.sets[0].tile_begin.push_back(e.sets[0].tile_begin.back());
    e.sets[0].tile_cycles.push_back(1);
  };
  EXPECT_THAT(error_with(with_idle_tile), HasSubstr(lacking));
  EXPECT_THAT(error_with([](Executable& e) { e.memory.tiles.emplace_back(); }), HasSubstr(lacking));
  EXPECT_THAT(error_with([](Executable& e) { e.memory.fullest_tile = 2; }), HasSubstr(lacking));
  EXPECT_THAT(error_with([](Executable& e) { e.set_cycles.clear(); }), HasSubstr("it lacks costs"));
  EXPECT_THAT(error_with([](Executable& e) { e.collectives.emplace_back(); }),
              HasSubstr("has costs of others"));
}

TEST_F(ExecutableFile, WithStepsOutOfReachThatNameNothingIsRefused) {
  const machine::Machine machine = testing::toy_machine(1);
  program::Program p = testing::random_program(1, {1, false});
  const auto sound = compiler::compile(p, machine);
  for (const program::Step& step : {program::Step{program::Call{99}}, program::Step{program::If{99}}}) {
    program::Program changed = p;
    changed.add(step);
    Executable e = *sound;
    e.program = std::make_shared<const program::Program>(std::move(changed));
    compiler::save(e, path_);
    EXPECT_THAT(error_of(machine), HasSubstr("unsound tile program"));
  }
}

/// Such files would take long to verify, although they have only a few bytes.
TEST_F(ExecutableFile, WithMoreVerticesOrCopiesThanBytesIsRefused) {
  const machine::Machine machine = testing::toy_machine(2);
  Executable e = *compiler::compile(row_by_row(), machine);
  const program::Box one{0, 1, 0, 1};
  const auto error_with = [&](uint32_t tiles, uint32_t per_tile, uint32_t copies) {
    program::Program p;
    const auto x = p.add(testing::variable("x", Type::f32, 1, 1, program::Role::temporary, 0));
    program::VertexGroup group =
        testing::vertex(testing::scale_codelet, 0, {testing::field(x, one)}, {int64_t{2}});
    group.tiles = tiles;
    group.per_tile = per_tile;
    const program::BoxSeries same = program::BoxSeries::same(one);
    p.set_main(p.sequence({p.execute({"scale", program::Phase::compute, {group}}),
                           p.copy({"copy", {{x, x, copies, same, same, {}, {}, {}}}})}));
    e.program = std::make_shared<const program::Program>(std::move(p));
    compiler::save(e, path_);
    return error_of(machine);
  };
  constexpr uint32_t kMany = 1U << 20;
  EXPECT_THAT(error_with(2, kMany, 1), HasSubstr("it has 2097153 vertices and copies in "));
  EXPECT_THAT(error_with(kMany, 1, 1), HasSubstr("it has 1048577 vertices and copies in "));
  EXPECT_THAT(error_with(1, 1, kMany), HasSubstr("it has 1048577 vertices and copies in "));
}

TEST_F(ExecutableFile, IsNotTrusted) {
  const machine::Machine machine = testing::toy_machine_with_regions(3);
  const uint64_t programs = test::number_of_cases(8, 20);
  uint64_t refused = 0;
  for (uint64_t seed = 0; seed < programs; ++seed) {
    save(testing::random_program(seed, {3, false}), machine);
    const std::string whole = bytes();
    base::RandomSequence random{base::RandomStream(seed, 3)};
    for (int i = 0; i < 50; ++i) {
      std::string other = whole;
      const uint32_t at = 20 + random.below(static_cast<uint32_t>(whole.size() - 20));
      other[at] = static_cast<char>(random.below(2) == 0 ? 0xFF : random.below(256));
      if (random.below(8) == 0) other.resize(at);
      if (other.size() < 20) continue;
      write(resealed(other));
      try {
        load(machine);
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 12 * programs);
}

}  // namespace
}  // namespace tessera::engine
