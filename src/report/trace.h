// Traces of runs in the Chrome Trace Event Format, which Perfetto and chrome://tracing open.
#pragma once

#include <span>
#include <string>

#include "report/run_summary.h"

namespace tessera::report {

struct TracedRun {
  std::string name;
  const RunSummary* run = nullptr;
};

/// One process a run, all beginning at 0. Its tracks: steps with their phases inside; and of a host
/// its threads, as measured, of a modelled machine the busiest tile and the median one. Times are
/// microseconds; those of a modelled machine are its cycles at its clock.
std::string trace_json(std::span<const TracedRun> runs);

}  // namespace tessera::report
