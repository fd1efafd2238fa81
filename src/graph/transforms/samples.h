// A graph for some of its samples, where each depends on its own inputs only.
#pragma once

#include <tessera/graph.h>

#include <cstdint>
#include <optional>

namespace tessera::graph {

/// Samples that a graph computes: the first dimension of its first input; 0: it has none.
uint32_t samples_of(const Graph& graph);

/// The graph for an equal part of its samples, if it can be run for one part after the other: inputs that
/// have an element of the first dimension for each sample, and all outputs, have those of the part; other
/// inputs, parameters and state are whole. None for a graph of which that is not known, or that is changed by
/// a run.
std::optional<Graph> for_samples(const Graph& graph, uint32_t parts);

}  // namespace tessera::graph
