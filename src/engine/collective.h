// Collectives of replicas.
#pragma once

#include <deque>

#include "engine/run_memory.h"

namespace tessera::engine {

/// Runs the rounds of a collective in the memories of all replicas. Sums are added in the order of the
/// rounds, hence the same bits on every run.
void run_collective(const program::Program& program, const program::Collective& collective,
                    const std::deque<RunMemory>& replicas, bool reference);

}  // namespace tessera::engine
