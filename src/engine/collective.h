// Collectives of replicas.
#pragma once

#include <cstdint>

#include "engine/runner.h"
#include "program/program.h"

namespace tessera::engine {

/// Runs the rounds of a collective in the memories of this process's replicas, which exchange messages with
/// those of other ranks. Sums are added in the order of the rounds, hence the same bits on every run and any
/// number of ranks. `noted` is what ranks had noted before it (RankExchange).
void run_collective(const program::Program& program, const program::Collective& collective, RunState& state,
                    bool reference, uint64_t noted);

}  // namespace tessera::engine
