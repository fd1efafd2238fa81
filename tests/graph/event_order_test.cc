// The order of passes and sends in a program: times of chips that run them in that order.
#include "lower/event_order.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <tuple>
#include <vector>

namespace tessera::graph {
namespace {

std::vector<size_t> as_listed(const std::vector<TimedEvent>& events) {
  std::vector<size_t> order(events.size());
  std::iota(order.begin(), order.end(), size_t{0});
  return order;
}

/// Whether each event comes once, after its predecessors.
void expect_order(const std::vector<TimedEvent>& events, const std::vector<size_t>& order) {
  std::vector<bool> has_come(events.size());
  for (const size_t e : order) {
    for (const size_t before : events[e].after) EXPECT_TRUE(has_come[before]);
    EXPECT_FALSE(has_come[e]);
    has_come[e] = true;
  }
  EXPECT_EQ(order.size(), events.size());
}

TEST(EventOrder, KeepsWhatComesBefore) {
  std::mt19937 random(5);
  const auto draw = [&](uint32_t count) { return static_cast<uint32_t>(random() % count); };
  for (uint32_t graph = 0; graph < 100; ++graph) {
    std::vector<TimedEvent> events(1 + draw(40));
    for (size_t e = 0; e < events.size(); ++e) {
      events[e] = {{draw(4)}, draw(5), draw(6), {}};
      if (events[e].work == 0) events[e].places.push_back(draw(4));
      for (size_t before = 0; before < e; ++before)
        if (draw(8) == 0) events[e].after.push_back(before);
    }
    const std::vector<size_t> order = earliest_first(events);
    expect_order(events, order);
    uint64_t work = 0;
    for (const TimedEvent& event : events) work += event.work;
    EXPECT_LE(end_of(events, order), work);
  }
}

/// A pipeline whose first and last stage share chips. `forward_work` has the time of a forward pass for each
/// stage; a backward pass takes three times as long.
std::vector<TimedEvent> events_of_pipeline(const std::vector<uint64_t>& forward_work,
                                           uint32_t micro_batches) {
  constexpr uint32_t kPlaces[] = {0, 1, 2, 3, 0};
  const auto stages = static_cast<uint32_t>(forward_work.size());
  using Pass = std::tuple<bool, uint32_t, uint32_t>;  // backward, stage, micro-batch
  std::vector<TimedEvent> events, sent;
  std::vector<Pass> sent_to;
  std::map<Pass, size_t> given;  // the event that gives a pass its input
  std::vector<std::optional<size_t>> latest(stages);
  const auto add_pass = [&](bool backward, uint32_t stage, uint32_t m) {
    TimedEvent event{{kPlaces[stage]}, (backward ? 3 : 1) * forward_work[stage], stage, {}};
    if (const auto by = given.find({backward, stage, m}); by != given.end())
      event.after.push_back(by->second);
    if (latest[stage]) event.after.push_back(*latest[stage]);
    latest[stage] = events.size();
    events.push_back(event);
    if (backward ? stage == 0 : stage + 1 == stages) {
      if (!backward) given[{true, stage, m}] = events.size() - 1;
      return;
    }
    const uint32_t to = backward ? stage - 1 : stage + 1;
    sent.push_back({{kPlaces[stage], kPlaces[to]}, 0, stage, {events.size() - 1}});
    sent_to.emplace_back(backward, to, m);
  };
  // One stage after the other; stage s has S − s micro-batches in flight.
  for (uint32_t slot = 0; slot < 2 * (micro_batches + stages); ++slot) {
    for (uint32_t stage = 0; stage < stages; ++stage) {
      const uint32_t forward = slot >= stage ? (slot - stage) / 2 : 0;
      if (slot >= stage && (slot - stage) % 2 == 0 && forward < micro_batches)
        add_pass(false, stage, forward);
      const uint32_t begin = 2 * stages - 1 - stage;
      if (slot >= begin && (slot - begin) % 2 == 0 && (slot - begin) / 2 < micro_batches)
        add_pass(true, stage, (slot - begin) / 2);
    }
    for (size_t i = 0; i < sent.size(); ++i) {
      given[sent_to[i]] = events.size();
      events.push_back(sent[i]);
    }
    sent.clear();
    sent_to.clear();
  }
  return events;
}

/// The backward pass of the first stage does not hold up messages of the last one, so that chips work as long
/// as the slowest one.
TEST(EventOrder, LetsNoStageWaitForAnotherOnItsChips) {
  constexpr uint32_t kMicroBatches = 64;
  const std::vector<TimedEvent> events = events_of_pipeline({30, 70, 70, 70, 4}, kMicroBatches);
  const std::vector<size_t> order = earliest_first(events);
  expect_order(events, order);
  const double least = 4.0 * 70 * kMicroBatches;
  EXPECT_LT(static_cast<double>(end_of(events, order)), 1.1 * least);
  EXPECT_GT(static_cast<double>(end_of(events, as_listed(events))), 1.25 * least);
  EXPECT_EQ(faster_order(events), order);
}

/// Here the last event would end a 250th earlier, and no part of the order would repeat itself.
TEST(EventOrder, StaysAsListedForHardlyAnything) {
  const std::vector<TimedEvent> events = events_of_pipeline({71, 4, 30, 70, 70}, 64);
  EXPECT_LT(end_of(events, earliest_first(events)), end_of(events, as_listed(events)));
  EXPECT_EQ(faster_order(events), as_listed(events));
}

}  // namespace
}  // namespace tessera::graph
