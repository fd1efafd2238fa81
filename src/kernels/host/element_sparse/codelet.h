// The unstructured sparse product as a codelet: one vertex is one core's slice.
#pragma once

#include "kernels/host/element_sparse/element_sparse.h"
#include "kernels/sample.h"
#include "program/codelet.h"

namespace tessera::kernels {

/// Calls visit(name, knob) for every knob of a schedule, in the order of the codelet's parameters.
template <class Schedule, class Visit>
void visit_element_knobs(Schedule& schedule, const Visit& visit) {
  visit("row_parts", schedule.row_parts);
  visit("col_parts", schedule.col_parts);
  visit("panel_cols", schedule.panel_cols);
  visit("group_chunks", schedule.group_chunks);
  visit("stream_y", schedule.stream_y);
}

/// Fields and parameters of element_spmm, by position. The knobs are the last parameters.
namespace element_field {
enum : size_t { values, chunk_begin, blocks, row_groups, indices, x, y, scalars, bias, scratch, count };
}
namespace element_param {
enum : size_t { k_block, first_chunk, capacity, activation, first_knob };
}

/// Y = activation(alpha · W·X + beta · Y + bias) on one core's slice. chunk_begin holds the slice's chunks
/// and the end; the other arrays of W are whole; scalars are alpha and beta; an empty bias means none. The
/// cost reads the pattern if it is constant, and otherwise assumes `capacity` non-zeros in the slice.
extern const program::Codelet element_spmm_codelet;

/// The same with beta = 0, independent of the scalars: Y is written without being read.
extern const program::Codelet element_spmm_assign_codelet;

std::span<const ListedCodelet> element_sparse_codelets();

}  // namespace tessera::kernels
