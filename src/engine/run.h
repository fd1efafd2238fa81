// Arguments and results of a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/step_watch.h"
#include "program/chip_traffic.h"
#include "program/program.h"

namespace tessera::engine {

/// The caller's array for an external variable. Strides in elements.
struct Binding {
  program::VariableId variable = 0;
  void* data = nullptr;
  int64_t row_stride = 0;
  int64_t col_stride = 1;
  int64_t replica_stride = 0;  ///< from the array of one replica to the next replica's; 0: all replicas share
                               ///< the array, and outputs are the first replica's
};

/// The time during which a thread or a chip worked on a superstep; for a thread in seconds since the run
/// began.
struct Busy {
  double begin = 0;
  double end = 0;
};

enum class StepKind : uint8_t { set, copy, collective };

/// One superstep, copy set or collective of a run, in execution order.
struct TraceEvent {
  StepKind kind = StepKind::set;
  uint32_t id = 0;              ///< ComputeSetId, CopySetId or CollectiveId
  double start = 0;             ///< seconds since the run began
  program::PhaseTimes seconds;  ///< measured
  program::PhaseTimes cycles;   ///< predicted from costs, minus what steps beside a copy or collective hide;
                                ///< on one chip, the sum over the preceding events is its start
  std::vector<Busy> threads{};  ///< threads of a superstep
  /// On several chips: the time of each, waiting included, in cycles since the run began. Empty for chips
  /// that took no part.
  std::vector<Busy> chips{};

  bool is_copy() const { return kind != StepKind::set; }
};

/// Maximum length of a trace, as loops may run for very many passes.
inline constexpr size_t kMostTraceEvents = 100'000;

struct RunOptions {
  uint32_t threads = 0;                      ///< 0: one per tile, up to the host's default
  bool reference = false;                    ///< use the codelets' reference implementations
  bool profile = true;                       ///< measure times and add up costs; otherwise the profile is
                                             ///< empty
  bool dry = false;                          ///< walk control flow and add up costs, without floating-point
                                             ///< work
  std::vector<TraceEvent>* trace = nullptr;  ///< receives the run's events, at most kMostTraceEvents
  /// For a dry run on a machine of several chips: follows the chips of the first replica.
  compiler::StepWatch* watch = nullptr;
};

/// Totals of one compute set, copy set or collective over all its executions.
struct StepProfile {
  std::string name;
  uint64_t times = 0;
  program::PhaseTimes seconds;  ///< measured
  program::PhaseTimes cycles;   ///< from costs, minus what steps beside a copy or collective hide
};

struct Profile {
  double seconds = 0;          ///< wall clock, all supersteps
  program::PhaseTimes phases;  ///< measured seconds, which add up to `seconds`
  program::PhaseTimes cycles;  ///< cycles of the machine, from the codelets' costs; on several chips, of the
                               ///< chip that ends last
  std::vector<program::PhaseTimes> chips;  ///< cycles by chip, replica by replica, if there are several
  std::vector<program::LinkLoad> links;    ///< bytes over each link in use
  std::vector<StepProfile> sets;           ///< by ComputeSetId
  std::vector<StepProfile> copies;         ///< by CopySetId
  std::vector<StepProfile> collectives;    ///< by CollectiveId
  uint64_t supersteps = 0;
  uint64_t sent_bytes = 0;  ///< to other ranks, in messages as a communicator gets them: counted in a run,
                            ///< and predicted in a dry one
};

}  // namespace tessera::engine
