#include "engine/median_run.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace tessera::engine {
namespace {

/// Every run takes longer than the one before, and says which it was.
TEST(MedianRun, IsTheMiddleOfAllThatAreMeasured) {
  using std::chrono::milliseconds;
  uint64_t runs = 0;
  const TimedRun found = median_run([&](std::vector<TraceEvent>& trace) {
    std::this_thread::sleep_for(milliseconds(4 * runs));
    trace.resize(runs);
    Profile profile;
    profile.supersteps = runs++;
    return profile;
  });
  // The first two warm up.
  const uint64_t measured = runs - 2;
  EXPECT_GE(measured, 7U);
  EXPECT_NEAR(static_cast<double>(found.profile.supersteps), 2 + static_cast<double>(measured) / 2, 1);
  EXPECT_EQ(found.trace.size(), found.profile.supersteps);
  EXPECT_GE(found.seconds, 4e-3 * static_cast<double>(found.profile.supersteps));
}

}  // namespace
}  // namespace tessera::engine
