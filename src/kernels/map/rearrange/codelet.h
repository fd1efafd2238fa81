// Dimensions of an array in another order, or repeated.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

/// out[i0, …, i4] = in[Σ i_d · row_step_d, Σ i_d · col_step_d], of any type. The array has so many
/// elements in each dimension but the first, and is a matrix whose columns are the last one, or several of
/// the last ones; "out" is the box of it that begins at row, col: whole rows, if there are several. A step of
/// 0 repeats.
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
