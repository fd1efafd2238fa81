// What the steps of a lowered graph took, or would take.
#pragma once

#include <cstdint>

#include "engine/run.h"
#include "lower/lowering.h"
#include "program/codelet.h"

namespace tessera::graph {

struct StepTimes {
  program::PhaseTimes cycles, seconds;

  void operator+=(const engine::StepProfile& step) { cycles += step.cycles, seconds += step.seconds; }
  void operator+=(const StepTimes& other) { cycles += other.cycles, seconds += other.seconds; }
};

inline StepTimes times_of(const Lowered::Sets& sets, const engine::Profile& profile) {
  StepTimes times;
  for (uint32_t s = sets.first_set; s < sets.last_set; ++s) times += profile.sets[s];
  for (uint32_t c = sets.first_copy; c < sets.last_copy; ++c) times += profile.copies[c];
  for (uint32_t c = sets.first_collective; c < sets.last_collective; ++c) times += profile.collectives[c];
  return times;
}

}  // namespace tessera::graph
