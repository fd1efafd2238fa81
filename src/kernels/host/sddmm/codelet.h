// SDDMM as codelets: one vertex is one core's slice.
#pragma once

#include "kernels/common/codelet_list.h"
#include "kernels/host/sddmm/sddmm.h"

namespace tessera::kernels {

/// The knobs of the schedules, by the names of their members.
#define TESSERA_BLOCK_SDDMM_KNOBS(X) X(row_parts) X(group_rows) X(panel_cols)
#define TESSERA_ELEMENT_SDDMM_KNOBS(X) X(row_parts) X(panel_cols) X(group_panels)

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

/// Fields and parameters of block_sddmm. The parameters go on with the knobs.
#define TESSERA_BLOCK_SDDMM_FIELDS(X)                        \
  X(row_begin)                                               \
  X(columns, .alignment = 2)                                 \
  X(slots, .optional = true)                                 \
  X(dy)                                                      \
  X(x)                                                       \
  X(dw, .access = program::Access::inout, .scattered = true) \
  X(scalars)                                                 \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)
#define TESSERA_BLOCK_SDDMM_PARAMS(X) X(block_size) X(first_block)

namespace block_sddmm_field {
enum : size_t { TESSERA_BLOCK_SDDMM_FIELDS(TESSERA_POSITION) count };
}
namespace block_sddmm_param {
enum : size_t { TESSERA_BLOCK_SDDMM_PARAMS(TESSERA_POSITION) first_knob };
}

/// dW = alpha · (dY·Xᵀ at the pattern) + beta · dW on one core's slice. row_begin holds the slice's block
/// rows and the end, dy their rows; columns and slots are whole; dw holds the blocks from `first_block` on;
/// scalars are alpha and beta.
extern const program::Codelet block_sddmm_codelet;

/// The same with beta = 0, independent of the scalars: dW is written without being read.
extern const program::Codelet block_sddmm_assign_codelet;

/// Fields and parameters of element_sddmm.
#define TESSERA_ELEMENT_SDDMM_FIELDS(X)                      \
  X(chunk_begin)                                             \
  X(blocks, .alignment = 8)                                  \
  X(row_groups, .alignment = 2)                              \
  X(indices)                                                 \
  X(dy)                                                      \
  X(x)                                                       \
  X(dw, .access = program::Access::inout, .scattered = true) \
  X(scalars)                                                 \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)
#define TESSERA_ELEMENT_SDDMM_PARAMS(X) X(k_block) X(first_chunk) X(first_step) X(end_step) X(capacity)

namespace element_sddmm_field {
enum : size_t { TESSERA_ELEMENT_SDDMM_FIELDS(TESSERA_POSITION) count };
}
namespace element_sddmm_param {
enum : size_t { TESSERA_ELEMENT_SDDMM_PARAMS(TESSERA_POSITION) first_knob };
}

/// The same at single elements. chunk_begin holds the slice's chunks and the end, dy their rows; the other
/// arrays of W are whole; dw, sixteen values per row, begins with row `first_step`, and is cleared from the
/// slice's last one to `end_step`. The cost reads the pattern if it is constant, and otherwise assumes
/// `capacity` non-zeros in the slice.
extern const program::Codelet element_sddmm_codelet;
extern const program::Codelet element_sddmm_assign_codelet;

std::span<const ListedCodelet> sddmm_codelets();

}  // namespace tessera::kernels
