// How an operand of a smaller shape is broadcast.
#pragma once

#include <tessera/model.h>

#include <optional>

#include "ops/map/elementwise.h"

namespace tessera::model {

/// How a value takes part in an operation whose result has type `out`; none: it cannot.
std::optional<ops::Broadcast> broadcast_of(const TensorType& value, const TensorType& out);

/// The same of operands that lie alike.
ops::Broadcast broadcast_of(const ops::Operand& operand, const ops::Operand& out);

/// Position of element i of `out` in a value that is broadcast.
inline uint64_t broadcast_index(ops::Broadcast broadcast, uint64_t i, uint32_t cols) {
  switch (broadcast) {
    case ops::Broadcast::none: return i;
    case ops::Broadcast::row: return i % cols;
    case ops::Broadcast::column: return i / cols;
    case ops::Broadcast::scalar: break;
  }
  return 0;
}

/// The same for the transposed matrix.
inline ops::Broadcast transposed(ops::Broadcast broadcast) {
  if (broadcast == ops::Broadcast::row) return ops::Broadcast::column;
  return broadcast == ops::Broadcast::column ? ops::Broadcast::row : broadcast;
}

/// The sum of a gradient over what a value was broadcast to.
Value sum_to(Value gradient, const TensorType& type);

/// The smallest shape that two broadcast to; none if there is none.
std::optional<Shape> common_shape(const Shape& a, const Shape& b);

}  // namespace tessera::model
