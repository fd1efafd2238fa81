#include "lower/event_order.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

namespace tessera::graph {
namespace {

/// Until when chips are busy, by part.
class Clocks {
 public:
  explicit Clocks(const std::vector<TimedEvent>& events) : events_(events), ends_(events.size()) {
    for (const TimedEvent& event : events)
      for (const uint32_t place : event.places) free_.resize(std::max<size_t>(free_.size(), place + 1));
  }

  uint64_t begin_of(size_t event) const {
    uint64_t begin = 0;
    for (const uint32_t place : events_[event].places) begin = std::max(begin, free_[place]);
    for (const size_t before : events_[event].after) begin = std::max(begin, ends_[before]);
    return begin;
  }

  void run(size_t event) {
    ends_[event] = begin_of(event) + events_[event].work;
    for (const uint32_t place : events_[event].places) free_[place] = ends_[event];
    last_ = std::max(last_, ends_[event]);
  }

  uint64_t last() const { return last_; }

 private:
  const std::vector<TimedEvent>& events_;
  std::vector<uint64_t> ends_, free_;
  uint64_t last_ = 0;
};

}  // namespace

uint64_t end_of(const std::vector<TimedEvent>& events, const std::vector<size_t>& order) {
  Clocks clocks(events);
  for (const size_t event : order) clocks.run(event);
  return clocks.last();
}

std::vector<size_t> earliest_first(const std::vector<TimedEvent>& events) {
  std::vector<std::vector<size_t>> followers(events.size());
  std::vector<size_t> missing(events.size()), ready, order;
  uint64_t shortest = std::numeric_limits<uint64_t>::max();
  for (size_t e = 0; e < events.size(); ++e) {
    missing[e] = events[e].after.size();
    for (const size_t before : events[e].after) followers[before].push_back(e);
    if (missing[e] == 0) ready.push_back(e);
    if (events[e].work > 0) shortest = std::min(shortest, events[e].work);
  }
  Clocks clocks(events);
  // Passes of later stages go first, as earlier stages wait for them.
  const auto key = [&](size_t e) {
    const TimedEvent& event = events[e];
    const bool is_pass = event.work > 0;
    return std::tuple(clocks.begin_of(e) + (is_pass ? shortest / 4 : 0), is_pass, ~event.stage, e);
  };
  while (!ready.empty()) {
    const auto next = std::ranges::min_element(ready, {}, key);
    const size_t event = *next;
    ready.erase(next);
    clocks.run(event);
    order.push_back(event);
    for (const size_t follower : followers[event])
      if (--missing[follower] == 0) ready.push_back(follower);
  }
  return order;
}

std::vector<size_t> faster_order(const std::vector<TimedEvent>& events) {
  constexpr double kLeastGain = 0.02;
  std::vector<size_t> listed(events.size());
  std::iota(listed.begin(), listed.end(), size_t{0});
  std::vector<size_t> earliest = earliest_first(events);
  const auto of_listed = static_cast<double>(end_of(events, listed));
  const bool is_faster = static_cast<double>(end_of(events, earliest)) < (1 - kLeastGain) * of_listed;
  return is_faster ? earliest : listed;
}

}  // namespace tessera::graph
