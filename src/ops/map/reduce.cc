#include "ops/map/reduce.h"

#include "kernels/common/element.h"
#include "kernels/map/reduce/codelet.h"
#include "ops/types.h"

namespace tessera::ops {

using program::Role;

MapOperation operation_of(const ReduceProblem& p) {
  require_float(p.from, "a reduction");
  require_float(p.to, "a reduction");
  MapOperation operation{.codelet = &kernels::reduce_sum_codelet,
                         .phase = program::Phase::reduce,
                         .rows = 1,
                         .cols = p.elements};
  operation.operands = {{"partials", p.from, Role::input, p.partials, p.elements, false, true},
                        {"out", p.to, Role::output, 1, p.elements}};
  operation.params = {kernels::param_of(p.scale)};
  return operation;
}

MapOperation operation_of(const AxisReduceProblem& p) {
  const auto require = p.from == p.to && p.scale == 1 ? require_number : require_float;
  require(p.from, "a reduction");
  require(p.to, "a reduction");
  const uint32_t rows = p.over_rows ? 1 : p.rows;
  const uint32_t cols = p.over_rows ? p.cols : 1;
  MapOperation operation{
      .codelet = &kernels::codelet_of(p.op), .phase = program::Phase::reduce, .rows = rows, .cols = cols};
  operation.operands = {{"in", p.from, Role::input, p.rows, p.cols, !p.over_rows, p.over_rows},
                        {"out", p.to, Role::output, rows, cols}};
  const auto over = p.over_rows ? kernels::ReduceOver::columns : kernels::ReduceOver::rows;
  operation.params = {static_cast<int64_t>(over), kernels::param_of(p.scale)};
  return operation;
}

MapOperation operation_of(const NeighbourSumProblem& p) {
  require_float(p.from, "a sum of neighbouring rows");
  require_float(p.to, "a sum of neighbouring rows");
  MapOperation operation{.codelet = &kernels::reduce_neighbours_codelet,
                         .phase = program::Phase::reduce,
                         .rows = p.rows,
                         .cols = p.cols};
  operation.operands = {{"in", p.from, Role::input, p.rows * p.neighbours, p.cols},
                        {"out", p.to, Role::output, p.rows, p.cols}};
  operation.operands[0].rows_per_row = p.neighbours;
  return operation;
}

}  // namespace tessera::ops
