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

/// Fields and parameters of block_spmm. The parameters go on with the knobs.
#define TESSERA_BLOCK_SPMM_FIELDS(X)     \
  X(values)                              \
  X(row_begin)                           \
  X(columns, .alignment = 2)             \
  X(slots, .optional = true)             \
  X(x)                                   \
  X(y, .access = program::Access::inout) \
  X(scalars)                             \
  X(bias, .optional = true)              \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)
#define TESSERA_BLOCK_SPMM_PARAMS(X) X(block_size) X(transposed) X(activation)

namespace block_field {
enum : size_t { TESSERA_BLOCK_SPMM_FIELDS(TESSERA_POSITION) count };
}
namespace block_param {
enum : size_t { TESSERA_BLOCK_SPMM_PARAMS(TESSERA_POSITION) first_knob };
}

/// Y = activation(alpha · W·X + beta · Y + bias) on one core's slice. row_begin holds the slice's block rows
/// and the end; values, columns and slots are whole; empty slots mean each block's number; scalars are alpha
/// and beta; an empty bias means none. With `transposed`, W is the transpose of the stored `values`.
extern const program::Codelet block_spmm_codelet;

/// The same with beta = 0, independent of the scalars: Y is written without being read.
extern const program::Codelet block_spmm_assign_codelet;

std::span<const ListedCodelet> block_sparse_codelets();

}  // namespace tessera::kernels
