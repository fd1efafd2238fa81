// SDDMM, the weight gradient, as codelets: one vertex is one core's slice.
#pragma once

#include "kernels/host/sddmm/sddmm.h"
#include "kernels/sample.h"
#include "program/codelet.h"

namespace tessera::kernels {

/// Calls visit(name, knob) for every knob of a schedule, in the order of the codelet's parameters.
template <class Schedule, class Visit>
void visit_block_sddmm_knobs(Schedule& schedule, const Visit& visit) {
  visit("row_parts", schedule.row_parts);
  visit("group_rows", schedule.group_rows);
  visit("panel_cols", schedule.panel_cols);
}

template <class Schedule, class Visit>
void visit_element_sddmm_knobs(Schedule& schedule, const Visit& visit) {
  visit("row_parts", schedule.row_parts);
  visit("panel_cols", schedule.panel_cols);
  visit("group_panels", schedule.group_panels);
}

/// Fields and parameters of block_sddmm, by position. The knobs are the last parameters.
namespace block_sddmm_field {
enum : size_t { row_begin, columns, slots, dy, x, dw, scalars, scratch, count };
}
namespace block_sddmm_param {
enum : size_t { block_size, first_block, first_knob };
}

/// dW = alpha · (dY·Xᵀ at the pattern) + beta · dW on one core's slice. row_begin holds the slice's block
/// rows and the end, dy their rows; columns and slots are whole; dw holds the blocks from `first_block` on;
/// scalars are alpha and beta.
extern const program::Codelet block_sddmm_codelet;

/// The same with beta = 0, independent of the scalars: dW is written without being read.
extern const program::Codelet block_sddmm_assign_codelet;

/// Fields and parameters of element_sddmm.
namespace element_sddmm_field {
enum : size_t { chunk_begin, blocks, row_groups, indices, dy, x, dw, scalars, scratch, count };
}
namespace element_sddmm_param {
enum : size_t { k_block, first_chunk, first_step, end_step, capacity, first_knob };
}

/// The same at single elements. chunk_begin holds the slice's chunks and the end, dy their rows; the other
/// arrays of W are whole; dw, sixteen values per row, begins with row `first_step`, and is cleared from the
/// slice's last one to `end_step`. The cost reads the pattern if it is constant, and otherwise assumes
/// `capacity` non-zeros in the slice.
extern const program::Codelet element_sddmm_codelet;
extern const program::Codelet element_sddmm_assign_codelet;

std::span<const ListedCodelet> sddmm_codelets();

}  // namespace tessera::kernels
