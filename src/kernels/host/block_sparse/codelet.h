// The block-sparse product as a codelet: one vertex is one core's slice.
#pragma once

#include "kernels/common/codelet_list.h"
#include "kernels/host/block_sparse/block_sparse.h"

namespace tessera::kernels {

/// The knobs of a schedule, by the names of its members.
#define TESSERA_BLOCK_KNOBS(X) \
  X(kernel) X(row_parts) X(col_parts) X(micro_rows) X(micro_vectors) X(panel_cols) X(copy_x) X(stream_y)

/// Calls visit(name, knob) for every knob of a schedule, in the order of the codelet's parameters.
template <class Schedule, class Visit>
void visit_block_knobs(Schedule& schedule, const Visit& visit) {
#define TESSERA_VISIT(knob) visit(#knob, schedule.knob);
  TESSERA_BLOCK_KNOBS(TESSERA_VISIT)
#undef TESSERA_VISIT
}

/// Y = activation(alpha · W·X + beta · Y + bias) on one core's slice. X and Y are f32, or bf16 for the BF16
/// kernel. row_begin holds the slice's block rows and the end; values, columns and slots are whole; empty
/// slots mean each block's number; scalars are alpha and beta; an empty bias means none. With `transposed`, W
/// is the transpose of the stored `values`. With a window (kernels/common/window.h), which the BF16 kernel
/// does not support, x has whole images, and Y's columns are the window's positions from first_col on.
#define TESSERA_BLOCK_SPMM_FIELDS_OF(X, result) \
  X(values)                                     \
  X(row_begin)                                  \
  X(columns, .alignment = 2)                    \
  X(slots, .optional = true)                    \
  X(x)                                          \
  X(y, .access = program::Access::result)       \
  X(scalars)                                    \
  X(bias, .optional = true)                     \
  X(window, .optional = true)                   \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)
#define TESSERA_BLOCK_SPMM_FIELDS(X) TESSERA_BLOCK_SPMM_FIELDS_OF(X, inout)
/// block_spmm with beta = 0, whatever the scalars: Y is written without being read.
#define TESSERA_BLOCK_SPMM_ASSIGN_FIELDS(X) TESSERA_BLOCK_SPMM_FIELDS_OF(X, out)
#define TESSERA_BLOCK_SPMM_PARAMS(X) \
  X(block_size) X(transposed) X(activation) X(first_col) TESSERA_BLOCK_KNOBS(X)

#define TESSERA_BLOCK_SPARSE_CODELETS(X)                                                                    \
  X(block_spmm, TESSERA_BLOCK_SPMM_FIELDS, TESSERA_BLOCK_SPMM_PARAMS, block_spmm_simd, 4096)                \
  X(block_spmm_assign, TESSERA_BLOCK_SPMM_ASSIGN_FIELDS, TESSERA_BLOCK_SPMM_PARAMS, block_spmm_assign_simd, \
    4096)

TESSERA_POSITIONS(block_spmm_param, TESSERA_BLOCK_SPMM_PARAMS)
TESSERA_DECLARE_FAMILY(block_sparse, TESSERA_BLOCK_SPARSE_CODELETS)
TESSERA_BLOCK_SPARSE_CODELETS(TESSERA_DECLARE_FUNCTIONS)

}  // namespace tessera::kernels
