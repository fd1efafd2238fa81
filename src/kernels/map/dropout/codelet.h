// Dropout.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

/// out = in / keep where a random number below 1 is less than keep, else 0. Fields "in" and "out" of one
/// shape and type: f32, f16 or bf16; "step": a row of u32, the step and the numbers of sub-streams, which
/// have seeds of their own (seed_of_substream). Parameters are the seed and the operation of the random
/// stream (base/random.h), the bits of "keep" (param_of), and the numbering of elements: element (r, c) draws
/// number (row + r) · row_step + (col + c) · col_step.
#define TESSERA_DROPOUT_FIELDS(X) X(in) X(step) X(out, .access = program::Access::out)
#define TESSERA_DROPOUT_PARAMS(X) X(seed) X(operation) X(keep) X(row_step) X(col_step) X(row) X(col)

#define TESSERA_DROPOUT_CODELETS(X) \
  X(dropout, TESSERA_DROPOUT_FIELDS, TESSERA_DROPOUT_PARAMS, dropout_simd, 512)
TESSERA_DECLARE_FAMILY(dropout, TESSERA_DROPOUT_CODELETS)
TESSERA_POSITIONS(dropout_param, TESSERA_DROPOUT_PARAMS)

}  // namespace tessera::kernels
