// Threads that run the same measurement simultaneously.
#pragma once

#include <functional>

namespace tessera::machine {

/// Runs work(thread) on all threads simultaneously, `rounds` times with a barrier before and after each, and
/// returns the seconds of the fastest round.
double best_round_seconds(unsigned threads, int rounds, const std::function<void(unsigned)>& work);

/// Seconds of a superstep of this many spinning threads without work, as run by the engine's pool: one thread
/// signals each of the others, on a separate cache line, that there is work; all wait until everybody is
/// done; and the first waits until the others have left. The median of many supersteps, between which the
/// first thread works alone.
double superstep_seconds(unsigned threads);

}  // namespace tessera::machine
