// Operands of a smaller shape in the codelets of an operation that broadcasts them.
#pragma once

#include <vector>

#include "graph/broadcast.h"
#include "lower/layout.h"
#include "ops/operand.h"

namespace tessera::graph {

/// How operands that lie alike are broadcast.
ops::Broadcast broadcast_of(const ops::Operand& operand, const ops::Operand& out);

/// The same for the transposed matrix.
inline ops::Broadcast transposed(ops::Broadcast broadcast) {
  if (broadcast == ops::Broadcast::row) return ops::Broadcast::column;
  return broadcast == ops::Broadcast::column ? ops::Broadcast::row : broadcast;
}

/// Layouts of an operation on each element that broadcasts its inputs.
std::vector<LayoutChoice> broadcasting_layouts(Lowering& lowering, const Node& node);
/// An input of such an operation; expanded where codelets cannot broadcast it.
ops::Operand broadcast_input(Lowering& lowering, const Node& node, size_t input);
/// Fills an operand with a value that is broadcast to it in another way than codelets do it.
void expand_into(Lowering& lowering, const ops::Operand& value, const TensorType& type,
                 const ops::Operand& out, const TensorType& out_type);

}  // namespace tessera::graph
