// Arrays with permuted or repeated dimensions.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

/// out[i0, …, i4] = in[Σ i_d · row_step_d, Σ i_d · col_step_d], of any type. Parameters are the sizes of all
/// dimensions but the first, and steps. The array is a matrix whose columns are the last dimension, or
/// several of the last; "out" is the box of it that begins at row, col: whole rows, if columns are several
/// dimensions. A step of 0 repeats.
#define TESSERA_REARRANGE_FIELDS(X) X(in) X(out, .access = program::Access::out)
#define TESSERA_REARRANGE_PARAMS(X) \
  X(size_1)                         \
  X(size_2)                         \
  X(size_3)                         \
  X(size_4)                         \
  X(row_step_0)                     \
  X(row_step_1)                     \
  X(row_step_2)                     \
  X(row_step_3)                     \
  X(row_step_4)                     \
  X(col_step_0) X(col_step_1) X(col_step_2) X(col_step_3) X(col_step_4) X(row) X(col)

#define TESSERA_REARRANGE_CODELETS(X)                                                   \
  X(rearrange, TESSERA_REARRANGE_FIELDS, TESSERA_REARRANGE_PARAMS, rearrange_simd, 512, \
    .runs_on = program::RunsOn::hosts)
TESSERA_DECLARE_FAMILY(rearrange, TESSERA_REARRANGE_CODELETS)
TESSERA_POSITIONS(rearrange_param, TESSERA_REARRANGE_PARAMS)

}  // namespace tessera::kernels
