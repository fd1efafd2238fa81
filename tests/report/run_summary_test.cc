// The summary of a run agrees with its executable and profile.
#include "report/run_summary.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "report/runs.h"

namespace tessera::report {
namespace {

using testing::random_run;

constexpr uint64_t kSeeds = 25;

double length_of(const std::vector<PhaseSpan>& phases) {
  double seconds = 0;
  for (const auto& [phase, length] : phases) seconds += length;
  return seconds;
}

double total_of(const std::vector<StepSummary>& steps) {
  double seconds = 0;
  for (const StepSummary& step : steps) seconds += step.seconds.total();
  return seconds;
}

TEST(RunSummary, OfAModelledMachineHasItsCycles) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const testing::Run run = random_run(seed, testing::toy_machine(5, 1 << 20));
    const RunSummary summary = summarize(*run.executable, run.profile, run.trace, Times::accounted);
    const double expected = run.profile.cycles.total() / run.executable->machine.clock_hz;
    EXPECT_FALSE(summary.measured);
    EXPECT_NEAR(summary.seconds, expected, 1e-12 * expected);
    EXPECT_NEAR(total_of(summary.steps), expected, 1e-9 * expected);
    EXPECT_EQ(summary.runs.size(), run.trace.size());
    double clock = 0;
    for (const StepRun& step : summary.runs) {
      EXPECT_NEAR(step.begin, clock, 1e-9 * expected);
      clock += length_of(step.phases);
    }
    EXPECT_NEAR(clock, total_of(summary.steps), 1e-9 * expected);
  }
}

TEST(RunSummary, KnowsHowEvenTilesAre) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const testing::Run run = random_run(seed, testing::toy_machine(5, 1 << 20));
    const RunSummary summary = summarize(*run.executable, run.profile, run.trace, Times::accounted);
    ASSERT_EQ(summary.busy.size(), 5U);
    uint64_t times = 0;
    double slowest = 0;
    for (const StepSummary& step : summary.steps) {
      const double slack = 1e-6 * step.tiles.most;
      EXPECT_LE(step.tiles.least, step.tiles.mean + slack) << step.name;
      EXPECT_LE(step.tiles.mean, step.tiles.most + slack) << step.name;
      EXPECT_EQ(step.sampled.size(), summary.samples.size());
      times += step.times;
      if (!summary.samples.empty()) slowest += step.sampled[0] * static_cast<double>(step.times);
    }
    EXPECT_EQ(times, run.trace.size());
    const double most = *std::max_element(summary.busy.begin(), summary.busy.end());
    EXPECT_LE(most, summary.seconds * (1 + 1e-6));
    EXPECT_NEAR(slowest, most, 1e-6 * most);
  }
}

TEST(RunSummary, KeepsTheMemoryOfEveryTile) {
  const testing::Run run = random_run(7, testing::toy_machine(5, 1 << 20));
  const RunSummary summary = summarize(*run.executable, run.profile, run.trace, Times::accounted);
  ASSERT_EQ(summary.memory.tiles.size(), 5U);
  uint64_t total = summary.memory.shared.total();
  for (const compiler::TileMemory& tile : summary.memory.tiles) total += tile.total();
  EXPECT_EQ(total, run.executable->memory.total_bytes);
  EXPECT_EQ(summary.passes.size(), run.executable->passes.size());
}

TEST(RunSummary, OfAHostHasWhatWasMeasured) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const testing::Run run = random_run(seed, testing::toy_host(2));
    const RunSummary summary = summarize(*run.executable, run.profile, run.trace, Times::measured);
    EXPECT_TRUE(summary.measured);
    EXPECT_EQ(summary.seconds, run.profile.seconds);
    EXPECT_LE(total_of(summary.steps), run.profile.seconds * (1 + 1e-9));
    double before = 0;
    for (const StepRun& step : summary.runs) {
      EXPECT_GE(step.begin, before);
      for (const engine::Busy& thread : step.threads) {
        EXPECT_GE(thread.begin, step.begin - 1e-9);
        EXPECT_GE(thread.end, thread.begin);
        EXPECT_LE(thread.end, run.profile.seconds + 1e-9);
      }
      before = step.begin + length_of(step.phases) * (1 - 1e-9) - 1e-9;
    }
    EXPECT_LE(before, run.profile.seconds);
  }
}

TEST(RunSummary, OfWhatDidNotRunHasItsMemory) {
  const auto executable =
      compiler::compile(testing::random_program(3, {5, false}), testing::toy_machine(5, 1 << 20));
  const RunSummary summary = summarize(*executable, {}, {}, Times::accounted);
  EXPECT_TRUE(summary.steps.empty());
  EXPECT_TRUE(summary.runs.empty());
  EXPECT_EQ(summary.memory.total_bytes, executable->memory.total_bytes);
}

}  // namespace
}  // namespace tessera::report
