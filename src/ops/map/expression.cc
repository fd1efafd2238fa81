#include "ops/map/expression.h"

#include <fmt/format.h>

#include "kernels/map/expression/codelet.h"
#include "ops/types.h"

namespace tessera::ops {

using program::Role;

MapOperation operation_of(const ExpressionProblem& p) {
  for (const ExpressionProblem::Input& input : p.inputs) require_float(input.type, "an expression");
  for (const Type type : p.results) require_float(type, "an expression");
  const uint32_t rows = p.result_rows(), cols = p.result_cols();
  MapOperation operation{
      .codelet = &kernels::expression_codelet(p.inputs.size(), p.results.size(), p.over.has_value()),
      .phase = p.over ? program::Phase::reduce : program::Phase::compute,
      .rows = rows,
      .cols = cols,
      .params = kernels::params_of(p.expression)};
  if (p.over) operation.params.push_back(static_cast<int64_t>(*p.over));
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    operation.operands.push_back(
        broadcast_operand(fmt::format("in{}", i), p.inputs[i].type, p.rows, p.cols, p.inputs[i].broadcast));
    if (p.over == kernels::ReduceOver::columns) operation.operands.back().rows_per_row = kernels::kPartRows;
    if (p.over == kernels::ReduceOver::rows) operation.operands.back().cols_per_col = kernels::kPieceCols;
  }
  for (size_t i = 0; i < p.results.size(); ++i)
    operation.operands.push_back({fmt::format("out{}", i), p.results[i], Role::output, rows, cols});
  return operation;
}

}  // namespace tessera::ops
