// The unstructured sparse product as a codelet: one vertex is one core's slice.
#pragma once

#include "kernels/common/codelet_list.h"
#include "kernels/host/element_sparse/element_sparse.h"

namespace tessera::kernels {

/// The knobs of a schedule, by the names of its members.
#define TESSERA_ELEMENT_KNOBS(X) X(row_parts) X(col_parts) X(panel_cols) X(group_chunks) X(stream_y)

/// Calls visit(name, knob) for every knob of a schedule, in the order of the codelet's parameters.
template <class Schedule, class Visit>
void visit_element_knobs(Schedule& schedule, const Visit& visit) {
#define TESSERA_VISIT(knob) visit(#knob, schedule.knob);
  TESSERA_ELEMENT_KNOBS(TESSERA_VISIT)
#undef TESSERA_VISIT
}

/// Y = activation(alpha · W·X + beta · Y + bias) on one core's slice. chunk_begin holds the slice's chunks
/// and the end; the other arrays of W are whole; scalars are alpha and beta; an empty bias means none. The
/// cost reads the pattern if it is constant, and otherwise assumes `capacity` non-zeros in the slice. With a
/// window (kernels/common/window.h), x has whole images, and Y's columns are the window's positions from
/// first_col on.
#define TESSERA_ELEMENT_SPMM_FIELDS_OF(X, result) \
  X(values)                                       \
  X(chunk_begin)                                  \
  X(blocks, .alignment = 8)                       \
  X(row_groups, .alignment = 2)                   \
  X(indices)                                      \
  X(x)                                            \
  X(y, .access = program::Access::result)         \
  X(scalars)                                      \
  X(bias, .optional = true)                       \
  X(window, .optional = true)                     \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)
#define TESSERA_ELEMENT_SPMM_FIELDS(X) TESSERA_ELEMENT_SPMM_FIELDS_OF(X, inout)
/// element_spmm with beta = 0, whatever the scalars: Y is written without being read.
#define TESSERA_ELEMENT_SPMM_ASSIGN_FIELDS(X) TESSERA_ELEMENT_SPMM_FIELDS_OF(X, out)
#define TESSERA_ELEMENT_SPMM_PARAMS(X) \
  X(k_block) X(first_chunk) X(capacity) X(activation) X(first_col) TESSERA_ELEMENT_KNOBS(X)

#define TESSERA_ELEMENT_SPARSE_CODELETS(X)                                                           \
  X(element_spmm, TESSERA_ELEMENT_SPMM_FIELDS, TESSERA_ELEMENT_SPMM_PARAMS, element_spmm_simd, 8192) \
  X(element_spmm_assign, TESSERA_ELEMENT_SPMM_ASSIGN_FIELDS, TESSERA_ELEMENT_SPMM_PARAMS,            \
    element_spmm_assign_simd, 8192)

TESSERA_POSITIONS(element_spmm_param, TESSERA_ELEMENT_SPMM_PARAMS)
TESSERA_DECLARE_FAMILY(element_sparse, TESSERA_ELEMENT_SPARSE_CODELETS)
TESSERA_ELEMENT_SPARSE_CODELETS(TESSERA_DECLARE_FUNCTIONS)

}  // namespace tessera::kernels
