#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/lifetime.h"

namespace tessera::compiler {
namespace {

class Moments {
 public:
  uint32_t number(std::vector<Lifetime>& lifetimes) {
    // A hash of the set in use at a position: the sum of random numbers, one per lifetime.
    std::map<uint32_t, uint64_t> changes;
    for (size_t i = 0; i < lifetimes.size(); ++i)
      for (const Interval& interval : lifetimes[i]) {
        changes[interval.first] ^= number_of(i);
        changes[interval.last + 1] ^= number_of(i);
      }
    uint64_t in_use = 0;
    for (const auto& [position, change] : changes) {
      in_use ^= change;
      runs_.push_back({position, moments_.try_emplace(in_use, moments_.size()).first->second});
    }
    for (Lifetime& lifetime : lifetimes) lifetime = in_moments(lifetime);
    return static_cast<uint32_t>(moments_.size());
  }

 private:
  struct Run {
    uint32_t begin;
    uint32_t moment;
  };

  static uint64_t number_of(uint64_t i) {
    uint64_t x = (i + 1) * 0x9E3779B97F4A7C15;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
    x = (x ^ x >> 27) * 0x94D049BB133111EB;
    return x ^ x >> 31;
  }

  Lifetime in_moments(const Lifetime& lifetime) const {
    std::vector<Interval> intervals;
    for (const Interval& interval : lifetime) {
      auto run = std::lower_bound(runs_.begin(), runs_.end(), interval.first,
                                  [](const Run& r, uint32_t position) { return r.begin < position; });
      for (; run != runs_.end() && run->begin <= interval.last; ++run)
        intervals.push_back({run->moment, run->moment});
    }
    return joined(std::move(intervals));
  }

  std::vector<Run> runs_;
  std::unordered_map<uint64_t, uint32_t> moments_;
};

}  // namespace

uint32_t number_moments(std::vector<Lifetime>& lifetimes) { return Moments().number(lifetimes); }

}  // namespace tessera::compiler
