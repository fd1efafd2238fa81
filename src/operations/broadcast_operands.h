// Operands of a smaller shape in the codelets of an operation that broadcasts them.
#pragma once

#include <vector>

#include "graph/broadcast.h"
#include "lower/layout.h"
#include "ops/operand.h"

namespace tessera::graph {

/// How codelets broadcast an operand to a matrix, or to another operand with the same layout.
ops::Broadcast broadcast_of(const ops::Operand& operand, uint32_t rows, uint32_t cols);
inline ops::Broadcast broadcast_of(const ops::Operand& operand, const ops::Operand& out) {
  return broadcast_of(operand, out.rows(), out.cols());
}

/// The broadcast of the transposed matrices.
inline ops::Broadcast transposed(ops::Broadcast broadcast) {
  if (broadcast == ops::Broadcast::row) return ops::Broadcast::column;
  return broadcast == ops::Broadcast::column ? ops::Broadcast::row : broadcast;
}

/// The layouts in which an elementwise operation can run that broadcasts its inputs.
std::vector<LayoutChoice> broadcasting_layouts(Lowering& lowering, const Node& node);
/// An input of an elementwise operation, expanded if codelets cannot broadcast it.
ops::Operand broadcast_input(Lowering& lowering, const Node& node, size_t input);
/// Fills an operand with a value that is broadcast to it in a way that codelets do not support.
void expand_into(Lowering& lowering, const ops::Operand& value, const TensorType& type,
                 const ops::Operand& out, const TensorType& out_type);

}  // namespace tessera::graph
