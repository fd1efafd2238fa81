// Helpers for operations that are fused with the operation after them.
#pragma once

#include <optional>

#include "graph/operation.h"

namespace tessera::graph {

/// The other input of an operation that takes a node's result.
inline ValueId other_input(const Node& own, const Node& next) {
  return next.inputs[next.inputs[0] == own.outputs[0] ? 1 : 0];
}

/// A node with the addend of the sum that follows it as its last input; none: the addend's type differs from
/// the result's.
inline std::optional<Node> absorb_addend(const Graph& graph, const Node& own, const Node& next) {
  const ValueId other = other_input(own, next);
  const TensorType& sum = graph.type(next.outputs[0]);
  if (!(graph.type(other) == sum) || !(graph.type(own.outputs[0]) == sum)) return {};
  Node both = own;
  both.inputs.push_back(other);
  both.outputs = next.outputs;
  return both;
}

}  // namespace tessera::graph
