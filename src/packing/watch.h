// Time limit and cancellation of a search.
#pragma once

#include <tessera/packing.h>

#include "base/clock.h"

namespace tessera::pack {

/// Decides when a search must end: at its time limit, or when its caller asks.
class Watch {
 public:
  explicit Watch(const Options& options) : options_(options) {}

  double seconds() const { return base::seconds_since(start_); }

  /// Whether to end. Cheap enough for every step; once true, it stays true.
  bool is_over() {
    if (is_over_) return true;
    const double now = seconds();
    if (options_.time_limit > 0 && now >= options_.time_limit) is_over_ = true;
    if (options_.poll && now >= next_poll_) {
      next_poll_ = now + kPollEvery;
      progress_.seconds = now;
      if (!options_.poll(progress_)) is_over_ = true;
    }
    return is_over_;
  }

  /// Sets what the next poll reports.
  void report(uint64_t packs, uint64_t lower_bound) {
    progress_.packs = packs;
    progress_.lower_bound = lower_bound;
  }

 private:
  static constexpr double kPollEvery = 0.1;

  const Options& options_;
  base::Clock::time_point start_ = base::Clock::now();
  double next_poll_ = 0;
  Progress progress_;
  bool is_over_ = false;
};

}  // namespace tessera::pack
