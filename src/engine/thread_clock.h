// Time of one thread in one superstep, by phase.
#pragma once

#include "base/clock.h"
#include "program/codelet.h"

namespace tessera::engine {

using base::Clock;
using base::seconds_between;

/// Measures the time of one thread in one superstep, by phase.
class ThreadClock final : public program::PhaseClock {
 public:
  void start(program::Phase phase) {
    times_ = {};
    phase_ = phase;
    began_ = since_ = Clock::now();
  }
  void enter(program::Phase phase) override {
    const Clock::time_point now = Clock::now();
    times_[phase_] += seconds_between(since_, now);
    phase_ = phase;
    since_ = now;
  }
  const program::PhaseTimes& stop() {
    enter(phase_);
    return times_;
  }
  const program::PhaseTimes& times() const { return times_; }

  program::Phase phase() const { return phase_; }
  Clock::time_point began() const { return began_; }
  /// Start of the present phase.
  Clock::time_point since() const { return since_; }

 private:
  alignas(64) program::PhaseTimes times_;
  program::Phase phase_ = program::Phase::compute;
  Clock::time_point began_;
  Clock::time_point since_;
};

}  // namespace tessera::engine
