// Executables saved and loaded: the same program with the same result, and no harm from malicious files.
#include "compiler/executable_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/error.h>

#include <filesystem>
#include <fstream>

#include "base/checksum.h"
#include "base/random.h"
#include "compiler/compile.h"
#include "engine/engine.h"
#include "support/bound_arrays.h"
#include "support/random_program.h"
#include "support/reference_interpreter.h"
#include "support/toy_codelets.h"
#include "support/toy_machine.h"

namespace tessera::engine {
namespace {

using compiler::Executable;
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
  ~ExecutableFile() override { std::filesystem::remove(path_); }

  std::shared_ptr<const Executable> save(const program::Program& program, const machine::Machine& machine) {
    auto executable = compiler::compile(program, machine);
    compiler::save(*executable, path_);
    return executable;
  }
  std::shared_ptr<const Executable> load(const machine::Machine& machine) {
    return compiler::load(path_, machine, toy_codelet);
  }
  std::string error_of(const machine::Machine& machine) {
    try {
      load(machine);
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(path_));
      return e.what();
    }
    return "no error";
  }

  std::string bytes() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }
  /// The file with a correct checksum of its present contents.
  static std::string resealed(std::string bytes) {
    constexpr size_t kHeader = 20;
    const uint64_t sum = base::checksum(std::as_bytes(std::span(bytes).subspan(kHeader)));
    std::memcpy(&bytes[kHeader - 8], &sum, 8);
    return bytes;
  }

  std::string path_ = (std::filesystem::path(::testing::TempDir()) /
                       ::testing::UnitTest::GetInstance()->current_test_info()->name())
                          .string();
};

TEST_F(ExecutableFile, RunsAsWhatWasSaved) {
  for (const machine::Machine& machine : {testing::toy_machine(3), testing::toy_machine_with_regions(5),
                                          testing::toy_machine(4, 64 << 10, 1 << 20), testing::toy_host(2)})
    for (uint64_t seed = 0; seed < 60; ++seed) {
      SCOPED_TRACE(seed);
      const program::Program program =
          testing::random_program(seed, {machine.tiles, machine.has_shared_space()});
      const auto saved = save(program, machine);
      const auto loaded = load(machine);
      ASSERT_EQ(program::to_string(*loaded->program), program::to_string(program));
      ASSERT_EQ(loaded->known_ahead, saved->known_ahead);
      ASSERT_EQ(loaded->has_runtime_control, saved->has_runtime_control);
      ASSERT_EQ(loaded->costed_at_run, saved->costed_at_run);
      ASSERT_EQ(loaded->memory.fullest, saved->memory.fullest);
      const testing::FlatVariables initial = testing::flat_variables(program);
      testing::BoundArrays first(program, initial);
      testing::BoundArrays second(program, initial);
      const Profile before = Engine(saved).run(first.bindings(), {.threads = 1});
      const Profile after = Engine(loaded).run(second.bindings(), {.threads = 1});
      ASSERT_EQ(after.cycles.at, before.cycles.at);
      const auto expected = first.flat();
      const auto actual = second.flat();
      for (program::VariableId v = 0; v < actual.size(); ++v) {
        if (!program.variable(v).is_external()) continue;
        ASSERT_EQ(actual[v], expected[v]);
      }
      const std::string once = bytes();
      compiler::save(*loaded, path_);
      ASSERT_EQ(bytes(), once);
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
  EXPECT_THAT(error_of(machine), HasSubstr("it has format version 77, this build reads 2"));
  std::string damaged = whole;
  damaged.back() ^= 1;
  write(damaged);
  EXPECT_THAT(error_of(machine), HasSubstr("it is damaged"));
  write(resealed(whole + "x"));
  EXPECT_THAT(error_of(machine), HasSubstr("continues after its end"));
  write(whole);
  try {
    compiler::load(path_, machine, [](std::string_view) -> const program::Codelet* { return nullptr; });
    FAIL() << "was loaded";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("which this build lacks"));
  }
  std::filesystem::remove(path_);
  EXPECT_THROW(load(machine), Error);
}

/// Damage that no checksum detects: the loaded program may be another one, but must be sound.
TEST_F(ExecutableFile, IsNotTrusted) {
  const machine::Machine machine = testing::toy_machine_with_regions(3);
  uint32_t refused = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    save(testing::random_program(seed, {3, false}), machine);
    const std::string whole = bytes();
    base::RandomSequence random{base::RandomStream(seed, 3)};
    for (int i = 0; i < 100; ++i) {
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
  EXPECT_GT(refused, 500u);
}

}  // namespace
}  // namespace tessera::engine
