#include "operations/broadcast_operands.h"

#include "lower/lowering.h"
#include "ops/map/gather.h"
#include "ops/map/rearrange.h"

namespace tessera::graph {
namespace {

using ops::Broadcast;

/// By row of `out`: the row of a value that is broadcast to it.
std::vector<uint32_t> rows_of(const TensorType& value, const TensorType& out) {
  const ArrayIndex index = broadcast_index(value, out);
  std::vector<uint32_t> rows(out.rows());
  for (uint32_t row = 0; row < rows.size(); ++row)
    rows[row] = static_cast<uint32_t>(index(uint64_t{row} * out.cols()) / value.cols());
  return rows;
}

}  // namespace

Broadcast broadcast_of(const ops::Operand& operand, uint32_t rows, uint32_t cols) {
  const bool row = operand.rows() == 1 && rows != 1, column = operand.cols() == 1 && cols != 1;
  if (row) return column ? Broadcast::scalar : Broadcast::row;
  return column ? Broadcast::column : Broadcast::none;
}

std::vector<LayoutChoice> broadcasting_layouts(Lowering& l, const Node& node) {
  const TensorType& out = l.graph().type(node.outputs[0]);
  for (ValueId input : node.inputs)
    if (!broadcast_of(l.graph().type(input), out)) return row_layouts(l, node);
  return elementwise_layouts(l, node);
}

void expand_into(Lowering& l, const ops::Operand& value, const TensorType& type, const ops::Operand& out,
                 const TensorType& out_type) {
  const Type element = l.builder().type_of(value);
  if (l.on_host())
    return l.add(ops::RearrangeProblem{element, value.rows(), value.cols(), out_type.shape,
                                       broadcast_steps(type, out_type)},
                 {value, out});
  const bool has_columns = value.cols() == out.cols();
  const ops::Operand rows = has_columns ? out : l.temporary("rows", element, out.rows(), value.cols());
  l.add(ops::GatherProblem{element, value.rows(), value.cols(), rows_of(type, out_type)}, {value, rows});
  if (!has_columns)
    l.add(ops::BinaryProblem{kernels::Binary::maximum, element, out.rows(), out.cols(), 1, Broadcast::column,
                             Broadcast::column},
          {rows, rows, out});
}

ops::Operand broadcast_input(Lowering& l, const Node& node, size_t input) {
  const TensorType &type = l.graph().type(node.inputs[input]), &out = l.graph().type(node.outputs[0]);
  const ops::Operand value = l.input(input);
  if (broadcast_of(type, out)) return value;
  const ops::Operand expanded = l.temporary("expanded", type.type, out.rows(), out.cols());
  expand_into(l, value, type, expanded, out);
  return expanded;
}

}  // namespace tessera::graph
