#include "engine/median_run.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/clock.h"

namespace tessera::engine {
namespace {

constexpr int kWarmUps = 2;
constexpr size_t kLeastRuns = 7;
constexpr size_t kMostRuns = 200;
constexpr double kMeasureSeconds = 0.3;

}  // namespace

TimedRun median_of(std::vector<TimedRun> runs) {
  const auto middle = runs.begin() + static_cast<std::ptrdiff_t>(runs.size() / 2);
  std::ranges::nth_element(runs, middle, {}, &TimedRun::seconds);
  return std::move(*middle);
}

TimedRun median_run(const std::function<Profile(std::vector<TraceEvent>&)>& run) {
  for (int i = 0; i < kWarmUps; ++i) {
    std::vector<TraceEvent> ignored;
    run(ignored);
  }
  std::vector<TimedRun> runs;
  double total = 0;
  while (runs.size() < kMostRuns && (runs.size() < kLeastRuns || total < kMeasureSeconds)) {
    std::vector<TraceEvent> trace;
    Profile profile;
    const double seconds = base::seconds_of([&] { profile = run(trace); });
    total += seconds;
    runs.push_back({seconds, std::move(profile), std::move(trace)});
  }
  return median_of(std::move(runs));
}

}  // namespace tessera::engine
