// Broadcasting of values by NumPy's rules.
#pragma once

#include <tessera/graph.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/dims.h"
#include "graph/operation.h"
#include "ops/map/elementwise.h"

namespace tessera::graph {

/// How codelets whose result has type `out` broadcast a value; none: the value must be expanded first.
std::optional<ops::Broadcast> broadcast_of(const TensorType& value, const TensorType& out);

/// The positions in `value` of the elements of `out`, to which the value is broadcast.
ArrayIndex broadcast_index(const TensorType& value, const TensorType& out);

/// The strides of a value by dimension of `out`, to which it is broadcast; 0 where it is repeated.
std::vector<uint64_t> broadcast_steps(const TensorType& value, const TensorType& out);

/// Sums a gradient over the broadcast dimensions of a value of this type.
Value sum_to(Value gradient, const TensorType& type);

/// The smallest shape to which both broadcast; none: there is none.
std::optional<Shape> common_shape(const Shape& a, const Shape& b);
bool can_broadcast(const TensorType& value, const TensorType& out);

/// Traits::keeps_samples of operations that broadcast their operands.
bool broadcasting_keeps_samples(const Divided& divided);

}  // namespace tessera::graph
