// Which values replicas of a graph have in common.
#pragma once

#include <tessera/graph.h>

#include <vector>

namespace tessera::graph {

/// By value: whether it may differ between the replicas of a graph.
std::vector<bool> differ_between_replicas(const Graph& graph);

}  // namespace tessera::graph
