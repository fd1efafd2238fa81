// Graphs simplified for inference, by simplifications that depend on the values of their parameters.
#pragma once

#include <tessera/graph.h>

#include <set>
#include <string>

namespace tessera::graph {

/// A simplified graph, and the parameters whose values were changed or became part of other parameters.
struct FoldedGraph {
  Graph graph;
  std::set<std::string> changed;
};

/// Computes the values of a graph that depend on constants only, and folds a scale and shift per feature
/// after a product, such as batch normalisation with given statistics, into the product's weight and bias.
/// Zeros of weights stay zeros. Parameters that are vectors count as constants if they have initial values,
/// so only parameters of the result may be set afterwards. A graph that changes parameters or state is
/// returned unchanged.
FoldedGraph folded(const Graph& graph);

}  // namespace tessera::graph
