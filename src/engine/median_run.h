// Measuring a run: repeated until the median is worth something.
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

/// The one in the middle by time; there must be some.
TimedRun median_of(std::vector<TimedRun> runs);

/// Repeats until enough is measured; returns the run of median time.
TimedRun median_run(const std::function<Profile(std::vector<TraceEvent>&)>& run);

}  // namespace tessera::engine
