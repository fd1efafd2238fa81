// Traces of runs in the Chrome Trace Event Format, which Perfetto and chrome://tracing open.
#pragma once

#include <tessera/run_cost.h>

#include <span>
#include <string>

#include "report/run_summary.h"

namespace tessera::report {

struct TracedRun {
  std::string name;
  const RunSummary* run = nullptr;
};

struct TracedLanes {
  std::string name;
  const graph::RunCost* cost = nullptr;
};

/// One process per run, with a track for each chip of a pipeline: what it does, and when it waits. Runs
/// without lanes are left out.
std::string lanes_json(std::span<const TracedLanes> runs);

/// One process per run, all beginning at 0. Tracks: steps with their phases nested; then the measured threads
/// of a host, or the busiest and the median tile of a modelled machine. Times are in microseconds; on a
/// modelled machine they are cycles at its clock.
std::string trace_json(std::span<const TracedRun> runs);

}  // namespace tessera::report
