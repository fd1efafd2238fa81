// Updates of parameters by optimizers.
#pragma once

#include <optional>

#include "graph/operation.h"
#include "lower/weight.h"

namespace tessera::graph {

class Lowering;

/// The parameter or state in whose variable a node's output may be computed directly: the output is assigned
/// to it, and nothing after the node being lowered reads its old contents.
std::optional<ValueId> replaced_state(const Lowering& lowering, const Node& node, size_t output);

/// Whether an update may run in place: its results are assigned to the values that it updates, and nothing
/// after the node being lowered reads their old contents.
bool may_update_in_place(const Lowering& lowering, const Node& update);

/// The update of a weight in stored form, in place: its map operation and operands.
LinearUpdate update_of(Lowering& lowering, const Node& node);

}  // namespace tessera::graph
