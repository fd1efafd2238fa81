// Updates of parameters by optimizers.
#pragma once

#include "model/operation.h"
#include "model/weight.h"

namespace tessera::model {

class Lowering;

/// Whether a node is an optimizer's update, whose input 0 is the gradient.
bool is_update(const Node& node);
/// Which it changes.
ValueId updated_parameter(const Node& node);

/// All that it changes, in the order of its outputs.
std::vector<ValueId> updated_values(const Node& node);

/// Whether an update may change what it updates where that lies: if it is assigned to it, and nothing that
/// comes after the node being lowered reads what was there before.
bool may_update_in_place(const Lowering& lowering, const Node& update);

/// The update of a stored weight as an operation, and its operands, in place.
LinearUpdate update_of(Lowering& lowering, const Node& node);

}  // namespace tessera::model
