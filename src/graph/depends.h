// What the values of a graph are computed from, and what takes them.
#pragma once

#include <tessera/graph.h>

#include <cstdint>
#include <vector>

namespace tessera::graph {

/// By number, whether a value is the given one, or one that it is computed from.
std::vector<bool> sources_of(const Graph& graph, ValueId value);

/// By number of a value, the nodes that take it, in their order: each once for every input at which it does.
std::vector<std::vector<uint32_t>> users_of_values(const Graph& graph);

}  // namespace tessera::graph
