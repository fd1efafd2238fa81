// What the values of a graph are computed from.
#pragma once

#include <tessera/graph.h>

#include <vector>

namespace tessera::graph {

/// By number, whether a value is the given one, or one that it is computed from.
std::vector<bool> sources_of(const Graph& graph, ValueId value);

}  // namespace tessera::graph
