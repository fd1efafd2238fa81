// Arguments and results of a run.
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

/// One superstep or copy set of a run, in execution order.
struct TraceEvent {
  bool is_copy = false;
  uint32_t id = 0;              ///< ComputeSetId, or CopySetId
  double start = 0;             ///< seconds since the run began
  program::PhaseTimes seconds;  ///< measured
  program::PhaseTimes cycles;   ///< accounted; the sum of the preceding ones is its start
  std::vector<Busy> threads{};  ///< of a superstep
};

/// Maximum length of a trace: loops may run for longer than anyone reads.
inline constexpr size_t kMostTraceEvents = 100'000;

struct RunOptions {
  uint32_t threads = 0;                      ///< 0: one per tile, up to the host's default
  bool reference = false;                    ///< use the codelets' reference implementations
  bool profile = true;                       ///< measure and account; else the profile is empty
  bool dry = false;                          ///< walk control flow and account, without floating-point work
  std::vector<TraceEvent>* trace = nullptr;  ///< receives the run's events, at most kMostTraceEvents
};

/// Totals of one compute set or copy set over all its executions.
struct StepProfile {
  std::string name;
  uint64_t times = 0;
  program::PhaseTimes seconds;  ///< measured
  program::PhaseTimes cycles;   ///< accounted
};

struct Profile {
  double seconds = 0;               ///< wall clock, all supersteps
  program::PhaseTimes phases;       ///< measured seconds, which add up to `seconds`
  program::PhaseTimes cycles;       ///< of the machine, from the codelets' costs
  std::vector<StepProfile> sets;    ///< by ComputeSetId
  std::vector<StepProfile> copies;  ///< by CopySetId
  uint64_t supersteps = 0;
};

}  // namespace tessera::engine
