// Traces as Perfetto reads them: known tracks, and slices of a track that nest or follow one another.
#include "report/trace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "report/runs.h"

namespace tessera::report {
namespace {

using nlohmann::json;
using testing::random_run;

constexpr uint64_t kSeeds = 20;

using Track = std::pair<int, int>;

struct Slice {
  int64_t begin = 0;  // nanoseconds
  int64_t end = 0;
};

Track track_of(const json& event) { return {event["pid"].get<int>(), event["tid"].get<int>()}; }

/// Slices of each track, in the order of the file.
std::map<Track, std::vector<Slice>> slices_of(const json& trace) {
  std::map<Track, std::vector<Slice>> tracks;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const int64_t begin = std::llround(event["ts"].get<double>() * 1e3);
    const int64_t length = std::llround(event["dur"].get<double>() * 1e3);
    EXPECT_GT(length, 0);
    EXPECT_GE(begin, 0);
    tracks[track_of(event)].push_back({begin, begin + length});
  }
  return tracks;
}

void expect_nested(const std::vector<Slice>& slices) {
  std::vector<Slice> open;
  int64_t before = 0;
  for (const Slice& slice : slices) {
    ASSERT_GE(slice.begin, before) << "slices begin in order";
    before = slice.begin;
    while (!open.empty() && open.back().end <= slice.begin) open.pop_back();
    if (!open.empty()) {
      ASSERT_LE(slice.end, open.back().end) << "slices overlap";
    }
    open.push_back(slice);
  }
}

void expect_sound(const json& trace) {
  std::set<Track> named;
  std::set<int> processes;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "M") continue;
    EXPECT_FALSE(event["args"]["name"].get<std::string>().empty());
    if (event["name"] == "process_name") processes.insert(event["pid"].get<int>());
    if (event["name"] == "thread_name") named.insert(track_of(event));
  }
  for (const auto& [track, slices] : slices_of(trace)) {
    EXPECT_TRUE(named.contains(track));
    EXPECT_TRUE(processes.contains(track.first));
    expect_nested(slices);
  }
}

TEST(Trace, OfModelledMachinesNestsAndEndsWithTheRun) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const testing::Run run = random_run(seed, testing::toy_machine(5, 1 << 20));
    const RunSummary summary = summarize(*run.executable, run.profile, run.trace, Times::accounted);
    const TracedRun traced{"toy", &summary};
    const json trace = json::parse(trace_json({&traced, 1}));
    expect_sound(trace);
    int64_t end = 0;
    const std::map<Track, std::vector<Slice>> slices = slices_of(trace);
    for (const Slice& slice : slices.at({1, 0})) end = std::max(end, slice.end);
    EXPECT_NEAR(static_cast<double>(end), summary.seconds * 1e9, 1.0);
  }
}

TEST(Trace, OfAHostHasItsThreads) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const testing::Run run = random_run(seed, testing::toy_host(2));
    const RunSummary summary = summarize(*run.executable, run.profile, run.trace, Times::measured);
    const TracedRun traced{"host", &summary};
    const json trace = json::parse(trace_json({&traced, 1}));
    expect_sound(trace);
    EXPECT_TRUE((slices_of(trace).contains({1, 1})));
  }
}

TEST(Trace, HoldsSeveralRunsAndHostileNames) {
  const testing::Run run = random_run(1, testing::toy_machine(3, 1 << 20));
  const RunSummary summary = summarize(*run.executable, run.profile, run.trace, Times::accounted);
  const std::string hostile = "\"},{\\ \n \xFF";
  const std::vector<TracedRun> runs = {{hostile, &summary}, {"b", &summary}};
  const json trace = json::parse(trace_json(runs));
  expect_sound(trace);
  std::map<Track, std::vector<Slice>> slices = slices_of(trace);
  EXPECT_EQ((slices[{1, 0}].size()), (slices[{2, 0}].size()));
}

TEST(Trace, OfLanesHasOneForLinksWithDataUnderWay) {
  graph::RunCost cost;
  cost.seconds = 100e-9;
  graph::ChipSpan working, sum;
  working.end = 100;
  sum.kind = graph::ChipSpan::Kind::collective;
  sum.begin = 20;
  sum.end = 50;
  cost.lanes = {{0, {working}}};
  cost.under_way = {sum};
  const TracedLanes traced{"step", &cost};
  const json trace = json::parse(lanes_json({&traced, 1}));
  expect_sound(trace);
  std::map<Track, std::vector<Slice>> slices = slices_of(trace);
  ASSERT_EQ(slices.size(), 2U);
  ASSERT_EQ(slices.begin()->second.size(), 1U);  // of links, before the chips
  EXPECT_EQ(slices.begin()->second[0].begin, 20);
  EXPECT_EQ(slices.begin()->second[0].end, 50);
}

TEST(Trace, OfNothingIsStillATrace) { EXPECT_TRUE(json::parse(trace_json({}))["traceEvents"].empty()); }

}  // namespace
}  // namespace tessera::report
