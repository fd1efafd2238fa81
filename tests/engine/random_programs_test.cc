#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/error.h>

#include <cstdlib>
#include <cstring>

#include "base/random.h"
#include "compiler/compile.h"
#include "engine/engine.h"
#include "support/bound_arrays.h"
#include "support/random_program.h"
#include "support/reference_interpreter.h"
#include "support/toy_machine.h"

namespace tessera::engine {
namespace {

using testing::BoundArrays;
using testing::FlatVariables;

/// Small whole numbers, so that sums are worth comparing, in f32 and u32 alike.
void fill_externals(const program::Program& program, uint64_t seed, FlatVariables& variables) {
  base::RandomSequence random(base::RandomStream(seed, 1));
  for (program::VariableId v = 0; v < variables.size(); ++v) {
    const program::Variable& variable = program.variable(v);
    if (!variable.is_external() || variable.role == program::Role::output) continue;
    for (uint64_t i = 0; i < variable.elements(); ++i) {
      const uint32_t integer = random.below(100);
      const auto real = static_cast<float>(integer);
      std::memcpy(&variables[v][4 * i],
                  variable.type == Type::f32 ? static_cast<const void*>(&real) : &integer, 4);
    }
  }
}

/// The external variables after the program, as the reference interpreter has them.
void expect_like_oracle(uint64_t seed, const machine::Machine& machine,
                        const std::vector<uint32_t>& threads) {
  SCOPED_TRACE(fmt::format("seed {}", seed));
  const program::Program program =
      testing::random_program(seed, {machine.tiles, machine.has_shared_space()});
  FlatVariables expected = testing::flat_variables(program);
  fill_externals(program, seed, expected);
  const FlatVariables initial = expected;
  ASSERT_NO_THROW(testing::interpret(program, expected));

  const Engine engine(compiler::compile(program, machine));
  for (uint32_t t : threads) {
    BoundArrays arrays(program, initial);
    const Profile profile = engine.run(arrays.bindings(), {.threads = t});
    const FlatVariables actual = arrays.flat();
    for (program::VariableId v = 0; v < actual.size(); ++v) {
      if (!program.variable(v).is_external()) continue;
      ASSERT_EQ(actual[v], expected[v])
          << "variable " << program.variable(v).name << " with " << t << " threads\n"
          << program::to_string(program);
    }
    ASSERT_GT(profile.seconds, 0);
  }
}

class RandomPrograms : public ::testing::TestWithParam<machine::Machine> {};

TEST_P(RandomPrograms, GiveTheBitsOfTheReferenceInterpreterAtAnyThreadCount) {
  if (const char* seed = std::getenv("TESSERA_TEST_SEED"))
    return expect_like_oracle(std::strtoull(seed, nullptr, 10), GetParam(), {1, 2, 4});
  for (uint64_t seed = 0; seed < 500; ++seed) {
    expect_like_oracle(seed, GetParam(),
                       seed % 2 == 0 ? std::vector<uint32_t>{1, 2} : std::vector<uint32_t>{3, 1});
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Machines, RandomPrograms,
    ::testing::Values(testing::toy_machine(1), testing::toy_machine(2), testing::toy_machine(3),
                      testing::toy_machine(5), testing::toy_machine(7),
                      testing::toy_machine(5, 64 << 10, 1 << 20), testing::toy_machine_with_regions(1),
                      testing::toy_machine_with_regions(4), testing::toy_machine_with_regions(13, 48 << 10),
                      testing::toy_host(1), testing::toy_host(2), testing::toy_host(4)),
    [](const auto& param) {
      const bool shared = param.param.name == "toy" && param.param.has_shared_space();
      return fmt::format("{}{}{}", param.param.name, param.param.tiles,
                         shared                                  ? "shared"
                         : param.param.has_interleaved_region() ? "regions"
                                                                 : "");
    });

}  // namespace
}  // namespace tessera::engine
