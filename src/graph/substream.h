// What sets apart the random numbers that one operation draws: replicas, micro-batches and calls.
#pragma once

#include <cstdint>
#include <optional>

#include "graph/operation.h"

namespace tessera::graph {

/// Words of a sub-stream. Those of calls follow.
inline constexpr uint32_t kReplicaWord = 0, kMicroBatchWord = 1, kCallWord = 2;

/// Whether an operation, or a function that it calls, draws random numbers of sub-streams.
bool has_substreams(const Node& node);
bool has_substreams(const Graph& graph);

/// Whether it draws random numbers, of sub-streams or the same in all.
bool draws_numbers(const Node& node);

/// How many words the sub-streams of a whole graph have, in its functions too; 0: it has one.
uint32_t substream_words(const Graph& graph);

/// The number by which the random numbers of a call or a loop differ from those of others; none if it draws
/// none, 0 of a loop over micro-batches.
std::optional<uint32_t> number_of_call(const Node& node);

/// The sub-stream of a micro-batch.
Substream in_micro_batch(Substream substream, uint32_t number);

/// The sub-stream inside a call; a pass of a loop is a call inside the loop's.
Substream called(Substream substream, uint32_t call);

}  // namespace tessera::graph
