#include "ops/map/expression.h"

#include <fmt/format.h>

#include "kernels/map/expression/codelet.h"
#include "ops/types.h"

namespace tessera::ops {

using program::Role;

MapOperation operation_of(const ExpressionProblem& p) {
  for (const ExpressionProblem::Input& input : p.inputs) require_float(input.type, "an expression");
  for (const Type type : p.results) require_float(type, "an expression");
  const uint32_t rows = p.is_reduced ? kernels::reduced_rows(p.rows) : p.rows;
  MapOperation operation{
      .codelet = &kernels::expression_codelet(p.inputs.size(), p.results.size(), p.is_reduced),
      .phase = p.is_reduced ? program::Phase::reduce : program::Phase::compute,
      .rows = rows,
      .cols = p.cols,
      .params = kernels::params_of(p.expression)};
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    operation.operands.push_back(
        broadcast_operand(fmt::format("in{}", i), p.inputs[i].type, p.rows, p.cols, p.inputs[i].broadcast));
    if (p.is_reduced) operation.operands.back().rows_per_row = kernels::kPartRows;
  }
  for (size_t i = 0; i < p.results.size(); ++i)
    operation.operands.push_back({fmt::format("out{}", i), p.results[i], Role::output, rows, p.cols});
  return operation;
}

}  // namespace tessera::ops
