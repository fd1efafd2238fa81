// How an operand of a smaller shape is broadcast, as NumPy's are.
#pragma once

#include <tessera/model.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "model/operation.h"
#include "model/operations/dims.h"
#include "ops/map/elementwise.h"
#include "ops/operand.h"

namespace tessera::model {

/// How a value takes part in a codelet whose result has type `out`; none: it has to be expanded.
std::optional<ops::Broadcast> broadcast_of(const TensorType& value, const TensorType& out);
/// The same of operands that lie alike.
ops::Broadcast broadcast_of(const ops::Operand& operand, const ops::Operand& out);

/// Positions of elements of `out` in a value that is broadcast.
ArrayIndex broadcast_index(const TensorType& value, const TensorType& out);

/// By dimension of `out`: how far apart neighbours are in a value that is broadcast to it.
std::vector<uint64_t> broadcast_steps(const TensorType& value, const TensorType& out);

/// The same for the transposed matrix.
inline ops::Broadcast transposed(ops::Broadcast broadcast) {
  if (broadcast == ops::Broadcast::row) return ops::Broadcast::column;
  return broadcast == ops::Broadcast::column ? ops::Broadcast::row : broadcast;
}

/// The sum of a gradient over what a value was broadcast to.
Value sum_to(Value gradient, const TensorType& type);

/// The smallest shape that two broadcast to; none if there is none.
std::optional<Shape> common_shape(const Shape& a, const Shape& b);
bool can_broadcast(const TensorType& value, const TensorType& out);

/// The trait of an operation that broadcasts its operands.
bool broadcasting_keeps_samples(const Divided& divided);

/// Layouts of an operation on each element that broadcasts its inputs.
std::vector<LayoutChoice> broadcasting_layouts(Lowering& lowering, const Node& node);
/// An input of such an operation; expanded where codelets cannot broadcast it.
ops::Operand broadcast_input(Lowering& lowering, const Node& node, size_t input);
/// Fills an operand with a value that is broadcast to it in another way than codelets do it.
void expand_into(Lowering& lowering, const ops::Operand& value, const TensorType& type,
                 const ops::Operand& out, const TensorType& out_type);

}  // namespace tessera::model
