// Collectives of replicas.
#pragma once

#include <cstdint>

#include "engine/pool.h"
#include "engine/rank_exchange.h"
#include "engine/runner.h"
#include "program/program.h"

namespace tessera::engine {

/// Runs the rounds of a collective in the memories of this process's replicas, which exchange messages with
/// the replicas of other ranks. Sums are added in the order of the rounds, hence the same bits on every run
/// and any number of ranks and threads. `noted` is what ranks had noted before it (RankExchange). What is
/// received is added and copied on the threads of `team`, or without one on the calling thread.
void run_collective(const program::Program& program, const program::Collective& collective, RunState& state,
                    bool reference, uint64_t noted, Pool::Team* team);

/// Bytes of the messages that the rank with the replicas `own` sends in a collective, if every rank has as
/// many.
uint64_t sent_bytes(const program::Program& program, const program::Collective& collective,
                    const OwnReplicas& own);

}  // namespace tessera::engine
