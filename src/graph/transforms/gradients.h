// Reverse-mode differentiation of graphs.
#pragma once

#include <tessera/graph.h>

#include <optional>
#include <utility>
#include <vector>

namespace tessera::graph {

class FunctionGradients;

/// Whether a value is the constant 1: the gradient of a loss with respect to itself.
bool is_one(const Value& value);

/// The nodes and gradients that backpropagation adds to a graph.
struct Backpropagation {
  uint32_t first = 0;  ///< first of the added nodes, which are the last of the graph
  std::vector<std::optional<Value>> gradients = {};
};
/// Adds the gradients of values, given the gradients of other values.
Backpropagation backpropagate(Graph& graph, const std::vector<std::pair<ValueId, Value>>& given,
                              const std::vector<Value>& of, FunctionGradients& functions);

/// As gradients() without the last argument: whether gradients of 16 bits, of values that all passes of a
/// loop take, are summed over the passes in FP32, and rounded once.
std::vector<std::optional<Value>> gradients(Value loss, const std::vector<Value>& of, bool sums_in_f32);

}  // namespace tessera::graph
