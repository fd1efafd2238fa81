// Times during which storage is in use.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace tessera::compiler {

/// A range of moments, both ends included.
struct Interval {
  uint32_t first = 0;
  uint32_t last = 0;
  bool operator==(const Interval&) const = default;
  auto operator<=>(const Interval&) const = default;
};

/// Ascending intervals that do not touch each other.
using Lifetime = std::vector<Interval>;

/// Merges any intervals to a lifetime.
inline Lifetime joined(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end());
  size_t kept = 0;
  for (const Interval& next : intervals) {
    if (kept > 0 && next.first <= uint64_t{intervals[kept - 1].last} + 1)
      intervals[kept - 1].last = std::max(intervals[kept - 1].last, next.last);
    else
      intervals[kept++] = next;
  }
  intervals.resize(kept);
  return intervals;
}

/// Merges positions with the same storage in use into moments: a function that is called many times has the
/// same ones each time. Converts lifetimes from positions to moments, or from moments to the moments of a
/// part of the storage, which are fewer; returns the number of moments.
uint32_t number_moments(std::vector<Lifetime>& lifetimes);

}  // namespace tessera::compiler
