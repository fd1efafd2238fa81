// Reverse-mode differentiation of graphs.
#pragma once

#include <tessera/model.h>

#include <map>
#include <optional>
#include <vector>

namespace tessera::model {

class FunctionGradients;

/// Whether a value is the constant 1: the gradient of a loss with respect to itself.
bool is_one(const Value& value);

/// Adds the gradients of values, given those of others.
std::vector<std::optional<Value>> backpropagate(Graph& graph, const std::map<ValueId, Value>& given,
                                                const std::vector<Value>& of, FunctionGradients& functions);

}  // namespace tessera::model
