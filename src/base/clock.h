// Measured time in seconds.
#pragma once

#include <chrono>

namespace tessera::base {

using Clock = std::chrono::steady_clock;

inline double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}
inline double seconds_since(Clock::time_point start) { return seconds_between(start, Clock::now()); }

/// How long work takes.
template <class Work>
double seconds_of(const Work& work) {
  const Clock::time_point start = Clock::now();
  work();
  return seconds_since(start);
}

}  // namespace tessera::base
