// Graphs for some of the samples, where each sample depends on its own inputs only.
#pragma once

#include <tessera/graph.h>

#include <cstdint>
#include <optional>

namespace tessera::graph {

/// Number of samples of a graph: the first dimension of its first input; 0: it has none.
uint32_t samples_of(const Graph& graph);

/// The graph for one of `parts` equal parts of its samples, if it can run for one part after the other. All
/// outputs, and inputs whose first dimension counts samples, hold the samples of the part; other inputs,
/// parameters and state are whole. None for a graph that is not known to allow this, or whose runs change
/// state.
std::optional<Graph> for_samples(const Graph& graph, uint32_t parts);

}  // namespace tessera::graph
