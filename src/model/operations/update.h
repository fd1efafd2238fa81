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

/// The update of a stored weight as an operation, and its operands, in place.
LinearUpdate update_of(Lowering& lowering, const Node& node);

}  // namespace tessera::model
