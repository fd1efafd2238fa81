#include "engine/median_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace tessera::engine {
namespace {

TEST(MedianRun, IsTheOneInTheMiddle) {
  for (size_t count = 1; count < 20; ++count) {
    std::vector<TimedRun> runs;
    // In an order that is neither that of time nor its reverse.
    for (size_t i = 0; i < count; ++i) {
      const size_t rank = (7 * i + 3) % 19;
      TimedRun& run = runs.emplace_back();
      run.seconds = static_cast<double>(rank);
      run.profile.supersteps = rank;
      run.trace.resize(rank);
    }
    const TimedRun found = median_of(runs);
    const auto faster =
        std::ranges::count_if(runs, [&](const auto& run) { return run.seconds < found.seconds; });
    const auto slower =
        std::ranges::count_if(runs, [&](const auto& run) { return run.seconds > found.seconds; });
    EXPECT_LE(std::abs(faster - slower), 1) << count;
    EXPECT_EQ(found.profile.supersteps, static_cast<uint64_t>(found.seconds));
    EXPECT_EQ(found.trace.size(), found.profile.supersteps);
  }
}

TEST(MedianRun, RepeatsAfterWarmingUp) {
  uint64_t runs = 0;
  median_run([&](std::vector<TraceEvent>&) { return ++runs, Profile(); });
  EXPECT_GE(runs, 2U + 7);
}

}  // namespace
}  // namespace tessera::engine
