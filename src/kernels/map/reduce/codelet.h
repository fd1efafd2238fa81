// Reductions of partial results, and of a matrix over an axis or all elements.
#pragma once

#include "kernels/common/codelet_list.h"
#include "kernels/map/reduce/axis.h"

namespace tessera::kernels {

/// out = scale · (partials 0 + partials 1 + …), added in this order in FP32 and rounded once. Fields
/// "partials" (p · rows × cols: matrices of out's size, stacked), "out" (rows × cols), each f32, f16 or bf16.
/// One parameter, the bits of the scale (param_of). The sum of no partials is 0.
#define TESSERA_REDUCE_SUM_FIELDS(X) X(partials) X(out, .access = program::Access::out)
#define TESSERA_REDUCE_SUM_PARAMS(X) X(scale)

/// Sums of partial rows, for tiles: out[r] = the sum of partials[i] for all i with rows[i] = r, in FP32, in
/// the order of i; 0 if there is none. Fields "partials" (p × n), "rows" (p × 1, u16 or u32), "out" (rows ×
/// n).
#define TESSERA_REDUCE_ROWS_FIELDS(X) \
  X(partials, .alignment = 8) X(rows, .costed = true) X(out, .access = program::Access::out, .alignment = 8)

/// The same by one worker, for rows that have equal numbers of partials.
#define TESSERA_WORKER_REDUCE_ROWS_FIELDS(X) X(partials) X(rows) X(out, .access = program::Access::out)

/// Sums of neighbouring rows: out[r] = in[r · g] + … + in[r · g + g − 1], added in this order in FP32 and
/// rounded once. Fields "in" (g · rows × cols), "out" (rows × cols), each f32, f16 or bf16.
#define TESSERA_REDUCE_NEIGHBOURS_FIELDS(X) X(in) X(out, .access = program::Access::out)

#define TESSERA_REDUCE_CODELETS(X)                                                          \
  X(reduce_sum, TESSERA_REDUCE_SUM_FIELDS, TESSERA_REDUCE_SUM_PARAMS, reduce_sum_simd, 384) \
  X(reduce_rows, TESSERA_REDUCE_ROWS_FIELDS, TESSERA_NONE, reduce_rows_simd, 384,           \
    .runs_on = program::RunsOn::tiles)                                                      \
  X(reduce_neighbours, TESSERA_REDUCE_NEIGHBOURS_FIELDS, TESSERA_NONE, reduce_neighbours_simd, 384)
#define TESSERA_WORKER_REDUCE_CODELETS(X) \
  X(worker_reduce_rows, TESSERA_WORKER_REDUCE_ROWS_FIELDS, TESSERA_NONE, worker_reduce_rows_simd, 384)
TESSERA_DECLARE_FAMILY(reduce, TESSERA_REDUCE_CODELETS)
TESSERA_REDUCE_CODELETS(TESSERA_DECLARE_FUNCTIONS)
TESSERA_WORKER_REDUCE_CODELETS(TESSERA_DECLARE_CODELET)
TESSERA_WORKER_REDUCE_CODELETS(TESSERA_DECLARE_FUNCTIONS)
TESSERA_POSITIONS(reduce_sum_param, TESSERA_REDUCE_SUM_PARAMS)

#define TESSERA_AXIS_REDUCTION_FIELDS(X) X(in) X(out, .access = program::Access::out)
#define TESSERA_AXIS_REDUCTION_PARAMS(X) X(over) X(scale)
TESSERA_POSITIONS(axis_reduction_field, TESSERA_AXIS_REDUCTION_FIELDS)
TESSERA_POSITIONS(axis_reduction_param, TESSERA_AXIS_REDUCTION_PARAMS)

/// out = scale · op of the columns of "in" (rows × cols to 1 × cols), of its rows (to rows × 1) or of all its
/// elements (to 1 × 1), in FP32 and rounded once, each f32, f16 or bf16. Parameters "over" (a ReduceOver) and
/// the bits of the scale.
/// Also for u32 and i32, modulo 2^32 and without a scale.
const program::Codelet& codelet_of(Reduction op);

}  // namespace tessera::kernels
