// Sub-streams of random numbers, which differ between replicas, micro-batches and calls.
#pragma once

#include <cstdint>
#include <optional>

#include "graph/operation.h"

namespace tessera::graph {

/// Positions of the words of a sub-stream; kCallWord is the first of the calls' words.
inline constexpr uint32_t kReplicaWord = 0, kMicroBatchWord = 1, kCallWord = 2;

/// Whether an operation, or a function that it calls, draws random numbers from sub-streams; and whether a
/// graph does.
bool has_substreams(const Node& node);
bool has_substreams(const Graph& graph);

/// Whether an operation, or a function that it calls, draws random numbers, whether or not they differ
/// between sub-streams.
bool draws_numbers(const Node& node);

/// Number of words of a graph's sub-streams, including its functions' sub-streams; 0: no sub-streams.
uint32_t substream_words(const Graph& graph);

/// The number that distinguishes the random numbers of a call or a loop from other calls' random numbers;
/// none if it draws no numbers, 0 for a loop over micro-batches.
std::optional<uint32_t> number_of_call(const Node& node);

/// The seed of a sub-stream, from its operation's seed.
uint64_t seed_in(const Substream& substream, uint64_t seed);

/// The sub-stream of a micro-batch.
Substream in_micro_batch(Substream substream, uint32_t number);

/// The sub-stream inside a call; a pass of a loop is a call inside the loop's.
Substream called(Substream substream, uint32_t call);

}  // namespace tessera::graph
