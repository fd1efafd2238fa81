// Updates of parameters by optimizers.
#pragma once

#include <optional>

#include "graph/operation.h"
#include "lower/weight.h"

namespace tessera::graph {

class Lowering;

/// The parameter or state in whose place a result may be stored at once: it is assigned to it, and nothing
/// that comes after the node being lowered reads what was there before.
std::optional<ValueId> replaced_state(const Lowering& lowering, const Node& node, size_t output);

/// Whether an update may change what it updates where that lies: if it is assigned to it, and nothing that
/// comes after the node being lowered reads what was there before.
bool may_update_in_place(const Lowering& lowering, const Node& update);

/// The update of a stored weight as an operation, and its operands, in place.
LinearUpdate update_of(Lowering& lowering, const Node& node);

}  // namespace tessera::graph
