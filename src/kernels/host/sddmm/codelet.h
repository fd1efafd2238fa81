// SDDMM as codelets: one vertex is one core's slice.
#pragma once

#include "kernels/common/codelet_list.h"
#include "kernels/host/sddmm/sddmm.h"

namespace tessera::kernels {

/// The knobs of the schedules, by the names of their members.
#define TESSERA_BLOCK_SDDMM_KNOBS(X) X(row_parts) X(col_parts) X(group_rows) X(panel_cols)
#define TESSERA_ELEMENT_SDDMM_KNOBS(X) X(row_parts) X(col_parts) X(panel_cols) X(group_panels)

/// Calls visit(name, knob) for every knob of a schedule, in the order of the codelet's parameters.
#define TESSERA_VISIT(knob) visit(#knob, schedule.knob);
template <class Schedule, class Visit>
void visit_block_sddmm_knobs(Schedule& schedule, const Visit& visit) {
  TESSERA_BLOCK_SDDMM_KNOBS(TESSERA_VISIT)
}

template <class Schedule, class Visit>
void visit_element_sddmm_knobs(Schedule& schedule, const Visit& visit) {
  TESSERA_ELEMENT_SDDMM_KNOBS(TESSERA_VISIT)
}
#undef TESSERA_VISIT

/// dW = alpha · (dY·Xᵀ at the pattern) + beta · dW on one core's slice. row_begin holds the slice's block
/// rows and the end, dy their rows; columns and slots are whole; dw holds the blocks from `first_block` on;
/// scalars are alpha and beta. With a window, x has images, channels × positions, and X the elements under
/// it.
#define TESSERA_BLOCK_SDDMM_FIELDS_OF(X, result)              \
  X(row_begin)                                                \
  X(columns, .alignment = 2)                                  \
  X(slots, .optional = true)                                  \
  X(dy)                                                       \
  X(x)                                                        \
  X(dw, .access = program::Access::result, .scattered = true) \
  X(scalars)                                                  \
  X(window, .optional = true)                                 \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)
#define TESSERA_BLOCK_SDDMM_FIELDS(X) TESSERA_BLOCK_SDDMM_FIELDS_OF(X, inout)
/// block_sddmm with beta = 0, whatever the scalars: dW is written without being read.
#define TESSERA_BLOCK_SDDMM_ASSIGN_FIELDS(X) TESSERA_BLOCK_SDDMM_FIELDS_OF(X, out)
#define TESSERA_BLOCK_SDDMM_PARAMS(X) X(block_size) X(first_block) X(first_col) TESSERA_BLOCK_SDDMM_KNOBS(X)

/// dW = alpha · (dY·Xᵀ at the pattern) + beta · dW at single elements. chunk_begin holds the slice's chunks
/// and the end, dy their rows; the other arrays of W are whole; dw, sixteen values per row, begins with row
/// `first_step`, and is cleared from the slice's last row to `end_step`. The cost reads the pattern if it is
/// constant, and otherwise assumes `capacity` non-zeros in the slice. With a window, x has whole images, and
/// dy's columns are the window's positions from first_col on.
#define TESSERA_ELEMENT_SDDMM_FIELDS_OF(X, result)            \
  X(chunk_begin)                                              \
  X(blocks, .alignment = 8)                                   \
  X(row_groups, .alignment = 2)                               \
  X(indices)                                                  \
  X(dy)                                                       \
  X(x)                                                        \
  X(dw, .access = program::Access::result, .scattered = true) \
  X(scalars)                                                  \
  X(window, .optional = true)                                 \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)
#define TESSERA_ELEMENT_SDDMM_FIELDS(X) TESSERA_ELEMENT_SDDMM_FIELDS_OF(X, inout)
#define TESSERA_ELEMENT_SDDMM_ASSIGN_FIELDS(X) TESSERA_ELEMENT_SDDMM_FIELDS_OF(X, out)
#define TESSERA_ELEMENT_SDDMM_PARAMS(X) \
  X(k_block) X(first_chunk) X(first_step) X(end_step) X(capacity) X(first_col) TESSERA_ELEMENT_SDDMM_KNOBS(X)

#define TESSERA_SDDMM_CODELETS(X)                                                                        \
  X(block_sddmm, TESSERA_BLOCK_SDDMM_FIELDS, TESSERA_BLOCK_SDDMM_PARAMS, block_sddmm_simd, 4096)         \
  X(element_sddmm, TESSERA_ELEMENT_SDDMM_FIELDS, TESSERA_ELEMENT_SDDMM_PARAMS, element_sddmm_simd, 8192) \
  X(block_sddmm_assign, TESSERA_BLOCK_SDDMM_ASSIGN_FIELDS, TESSERA_BLOCK_SDDMM_PARAMS,                   \
    block_sddmm_assign_simd, 4096)                                                                       \
  X(element_sddmm_assign, TESSERA_ELEMENT_SDDMM_ASSIGN_FIELDS, TESSERA_ELEMENT_SDDMM_PARAMS,             \
    element_sddmm_assign_simd, 8192)

TESSERA_POSITIONS(block_sddmm_param, TESSERA_BLOCK_SDDMM_PARAMS)
TESSERA_POSITIONS(element_sddmm_param, TESSERA_ELEMENT_SDDMM_PARAMS)
TESSERA_DECLARE_FAMILY(sddmm, TESSERA_SDDMM_CODELETS)
TESSERA_SDDMM_CODELETS(TESSERA_DECLARE_FUNCTIONS)

}  // namespace tessera::kernels
