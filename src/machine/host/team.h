// Threads that run the same measurement simultaneously.
#pragma once

#include <functional>

namespace tessera::machine {

/// Runs work(thread) on all threads simultaneously, `rounds` times with a barrier before and after each, and
/// returns the seconds of the fastest round.
double best_round_seconds(unsigned threads, int rounds, const std::function<void(unsigned)>& work);

/// Seconds of a superstep of this many spinning threads that do no work, as the engine's pool runs it: one
/// thread tells each of the others, on a line of its own, that there is work; all wait until everybody is
/// done; and the first waits until the others have left. The median of many, between which the first thread
/// works alone.
double superstep_seconds(unsigned threads);

}  // namespace tessera::machine
