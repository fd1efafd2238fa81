// How a value of a smaller shape is broadcast, as NumPy's are.
#pragma once

#include <tessera/graph.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/dims.h"
#include "graph/operation.h"
#include "ops/map/elementwise.h"

namespace tessera::graph {

/// How a value takes part in a codelet whose result has type `out`; none: it has to be expanded.
std::optional<ops::Broadcast> broadcast_of(const TensorType& value, const TensorType& out);

/// Positions of elements of `out` in a value that is broadcast.
ArrayIndex broadcast_index(const TensorType& value, const TensorType& out);

/// By dimension of `out`: how far apart neighbours are in a value that is broadcast to it.
std::vector<uint64_t> broadcast_steps(const TensorType& value, const TensorType& out);

/// The sum of a gradient over what a value was broadcast to.
Value sum_to(Value gradient, const TensorType& type);

/// The smallest shape that two broadcast to; none if there is none.
std::optional<Shape> common_shape(const Shape& a, const Shape& b);
bool can_broadcast(const TensorType& value, const TensorType& out);

/// The trait of an operation that broadcasts its operands.
bool broadcasting_keeps_samples(const Divided& divided);

}  // namespace tessera::graph
