// Threads that run the same measurement simultaneously.
#pragma once

#include <functional>

namespace tessera::machine {

/// Runs work(thread) on all threads simultaneously, `rounds` times with a barrier before and after each, and
/// returns the seconds of the fastest round.
double best_round_seconds(unsigned threads, int rounds, const std::function<void(unsigned)>& work);

/// Seconds of one barrier of this many spinning threads.
double barrier_seconds(unsigned threads);

}  // namespace tessera::machine
