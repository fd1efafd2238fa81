// The block-sparse product as a codelet: one vertex is one core's slice.
#pragma once

#include "kernels/host/block_sparse/block_sparse.h"
#include "kernels/sample.h"
#include "program/codelet.h"

namespace tessera::kernels {

/// Calls visit(name, knob) for every knob of a schedule, in the order of the codelet's parameters.
template <class Schedule, class Visit>
void visit_block_knobs(Schedule& schedule, const Visit& visit) {
  visit("kernel", schedule.kernel);
  visit("row_parts", schedule.row_parts);
  visit("col_parts", schedule.col_parts);
  visit("micro_rows", schedule.micro_rows);
  visit("micro_vectors", schedule.micro_vectors);
  visit("panel_cols", schedule.panel_cols);
  visit("copy_x", schedule.copy_x);
  visit("stream_y", schedule.stream_y);
}

/// Fields and parameters of block_spmm, by position. The knobs are the last parameters.
namespace block_field {
enum : size_t { values, row_begin, columns, slots, x, y, scalars, bias, scratch, count };
}
namespace block_param {
enum : size_t { block_size, transposed, activation, first_knob };
}

/// Y = activation(alpha · W·X + beta · Y + bias) on one core's slice. row_begin holds the slice's block rows
/// and the end; values, columns and slots are whole; empty slots mean each block's number; scalars are alpha
/// and beta; an empty bias means none. With `transposed`, W is the transpose of the stored `values`.
extern const program::Codelet block_spmm_codelet;

/// The same with beta = 0, independent of the scalars: Y is written without being read.
extern const program::Codelet block_spmm_assign_codelet;

std::span<const ListedCodelet> block_sparse_codelets();

}  // namespace tessera::kernels
