// What a run is given, and what it tells.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "program/program.h"

namespace tessera::engine {

/// The caller's array for an external variable. Strides in elements.
struct Binding {
  program::VariableId variable = 0;
  void* data = nullptr;
  int64_t row_stride = 0;
  int64_t col_stride = 1;
};

/// When a thread worked on a superstep, in seconds since the run began.
struct Busy {
  double begin = 0;
  double end = 0;
};

/// One superstep or copy set of a run, in the order in which they ran.
struct TraceEvent {
  bool is_copy = false;
  uint32_t id = 0;              ///< ComputeSetId, or CopySetId
  double start = 0;             ///< seconds since the run began
  program::PhaseTimes seconds;  ///< measured
  program::PhaseTimes cycles;   ///< accounted; what came before adds up to when it begins
  std::vector<Busy> threads{};  ///< of a superstep
};

/// A trace ends here: loops may run for longer than anyone reads.
inline constexpr size_t kMostTraceEvents = 100'000;

struct RunOptions {
  uint32_t threads = 0;                      ///< 0: one a tile, as many as the host has by default
  bool reference = false;                    ///< the codelets' reference implementations
  bool profile = true;                       ///< measure and account; else the profile is empty
  bool dry = false;                          ///< walk and account, without floating-point work
  std::vector<TraceEvent>* trace = nullptr;  ///< gets the run's events, kMostTraceEvents at most
};

/// What one compute set or copy set took, over all times that it ran.
struct StepProfile {
  std::string name;
  uint64_t times = 0;
  program::PhaseTimes seconds;  ///< measured
  program::PhaseTimes cycles;   ///< accounted
};

struct Profile {
  double seconds = 0;               ///< wall clock, all supersteps
  program::PhaseTimes phases;       ///< measured seconds, adding up to `seconds`
  program::PhaseTimes cycles;       ///< of the machine, as the codelets' costs account for them
  std::vector<StepProfile> sets;    ///< by ComputeSetId
  std::vector<StepProfile> copies;  ///< by CopySetId
  uint64_t supersteps = 0;
};

}  // namespace tessera::engine
