// Graphs that are made ready for inference, by whatever follows from the values of their parameters.
#pragma once

#include <tessera/graph.h>

#include <set>
#include <string>

namespace tessera::graph {

/// A graph, and the parameters whose values were changed or became part of others'.
struct FoldedGraph {
  Graph graph;
  std::set<std::string> changed;
};

/// The graph with what depends on constants alone computed, and with a factor and an addend of each feature
/// that follow a product, such as batch normalisation with given statistics, made part of its weight and
/// bias. Zeros stay zeros. Parameters that are vectors count as constants if they have initial values; no
/// values may be set afterwards but those that the result has. A graph that changes parameters or state stays
/// as it is.
FoldedGraph folded(const Graph& graph);

}  // namespace tessera::graph
