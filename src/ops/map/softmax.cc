#include "ops/map/softmax.h"

#include <tessera/error.h>

#include <algorithm>

#include "kernels/common/element.h"
#include "kernels/map/softmax/codelet.h"
#include "ops/types.h"

namespace tessera::ops {
namespace {

using program::Role;

/// rows × cols, of which columns are split, or the transpose, of which rows are.
MapOperand split_columns(const char* name, Type type, Role role, uint32_t rows, uint32_t cols,
                         bool transposed) {
  if (transposed) return {name, type, role, cols, rows, true, false};
  return {name, type, role, rows, cols, false, true};
}

}  // namespace

MapOperation operation_of(const SoftmaxProblem& p) {
  require_float(p.type, "a softmax");
  MapOperation operation{.codelet = &kernels::softmax_codelet,
                         .rows = p.over_rows ? std::min(1U, p.rows) : p.rows,
                         .cols = p.over_rows ? p.cols : std::min(1U, p.cols)};
  operation.operands = {{"in", p.type, Role::input, p.rows, p.cols, !p.over_rows, p.over_rows},
                        {"out", p.type, Role::output, p.rows, p.cols, !p.over_rows, p.over_rows}};
  operation.params = {p.over_rows ? 1 : 0};
  return operation;
}

MapOperation operation_of(const SoftmaxCrossEntropyProblem& p) {
  require_float(p.type, "a softmax");
  if (p.classes == 0) throw UsageError("a softmax needs at least one class");
  const bool transposed = !p.classes_in_rows;
  if (p.weighted && !p.gradient) throw UsageError("a weighted cross-entropy is computed with its gradient");
  MapOperation operation{.codelet = p.weighted   ? &kernels::weighted_cross_entropy_codelet
                                    : p.gradient ? &kernels::softmax_cross_entropy_codelet
                                                 : &kernels::softmax_cross_entropy_loss_codelet,
                         .rows = transposed ? p.columns : 1,
                         .cols = transposed ? 1 : p.columns};
  operation.operands = {split_columns("logits", p.type, Role::input, p.classes, p.columns, transposed),
                        split_columns("labels", Type::u32, Role::input, 1, p.columns, transposed)};
  if (p.weighted)
    operation.operands.push_back(split_columns("weights", Type::f32, Role::input, 1, p.columns, transposed));
  if (p.gradient)
    operation.operands.push_back(
        split_columns("gradient", p.type, Role::output, p.classes, p.columns, transposed));
  operation.operands.push_back(split_columns("loss", Type::f32, Role::output, 1, p.columns, transposed));
  operation.params = {p.classes_in_rows ? 1 : 0};
  if (p.gradient && !p.weighted) operation.params.push_back(kernels::param_of(p.scale));
  return operation;
}

}  // namespace tessera::ops
