// Checks a plan's predictions against its program.
#pragma once

#include <gtest/gtest.h>

#include "compiler/executable.h"
#include "ops/plan.h"

namespace tessera::ops {

/// Expects the predicted cycles of each phase to equal the cycles of a run, and predicted bytes to be at
/// least the executable's bytes, and at most `most_bytes` times these.
inline void expect_kept(const PlanCandidate& chosen, const compiler::Executable& executable,
                        const program::PhaseTimes& cycles, double most_bytes = 1.05) {
  for (size_t i = 0; i < program::kPhases; ++i)
    EXPECT_NEAR(chosen.seconds.at[i] * executable.machine.clock_hz, cycles.at[i], 1e-9 * cycles.total())
        << name_of(static_cast<program::Phase>(i));
  const uint64_t bytes = executable.memory.max_tile_bytes;
  EXPECT_GE(chosen.max_tile_bytes, bytes);
  EXPECT_LE(static_cast<double>(chosen.max_tile_bytes), most_bytes * static_cast<double>(bytes));
}

}  // namespace tessera::ops
