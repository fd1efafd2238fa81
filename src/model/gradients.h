// Reverse-mode differentiation of graphs.
#pragma once

#include <tessera/model.h>

namespace tessera::model {

/// Whether a value is the constant 1: the gradient of a loss with respect to itself.
bool is_one(const Value& value);

}  // namespace tessera::model
