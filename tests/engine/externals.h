// Contents of the external variables of random programs.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "base/random.h"
#include "support/bound_arrays.h"

namespace tessera::engine {

/// Fills external variables with small integers, so that sums are exact, in f32 and u32 alike.
inline void fill_externals(const program::Program& program, uint64_t seed,
                           testing::FlatVariables& variables) {
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

/// Compares the external variables, or the state variables.
inline void expect_equal(const program::Program& program, const testing::FlatVariables& actual,
                         const testing::FlatVariables& expected, program::Role role = program::Role::output) {
  for (program::VariableId v = 0; v < actual.size(); ++v) {
    const program::Variable& variable = program.variable(v);
    if (role == program::Role::state ? variable.role != role : !variable.is_external()) continue;
    ASSERT_EQ(actual[v], expected[v]) << "variable " << variable.name << "\n" << program::to_string(program);
  }
}

}  // namespace tessera::engine
