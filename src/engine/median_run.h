// Measuring a run, repeated until the median is reliable.
#pragma once

#include <functional>
#include <vector>

#include "engine/run.h"

namespace tessera::engine {

struct TimedRun {
  double seconds = 0;
  Profile profile;
  std::vector<TraceEvent> trace;
};

/// The run of median time; `runs` must not be empty.
TimedRun median_of(std::vector<TimedRun> runs);

/// Repeats a run until enough times are measured; returns the run of median time.
TimedRun median_run(const std::function<Profile(std::vector<TraceEvent>&)>& run);

}  // namespace tessera::engine
