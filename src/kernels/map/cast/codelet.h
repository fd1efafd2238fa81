// Conversion between the floating-point types, u32 and i32.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

/// Fields of one shape, each f32, f16, bf16, u32 or i32, `in` also u8. Rounds once, to nearest even; values
/// beyond the type become infinity; NaN stays NaN. To integers: converted().
#define TESSERA_CAST_FIELDS(X) X(in) X(out, .access = program::Access::out)

/// Converts f32, f16 or bf16 to f16 or bf16, rounded stochastically (base/stochastic_rounding.h). "step" is a
/// row of u32: the step and the numbers of sub-streams (draws_at). Parameters are the seed and the operation
/// of the random stream, the order in which elements are numbered (ElementOrder), and the position of the
/// first element in the whole matrix.
#define TESSERA_STOCHASTIC_CAST_FIELDS(X) X(in) X(step) X(out, .access = program::Access::out)
#define TESSERA_STOCHASTIC_CAST_PARAMS(X) \
  X(seed) X(operation) X(row_step) X(group) X(group_step) X(col_step) X(row) X(col)

#define TESSERA_CAST_CODELETS(X)                                                                           \
  X(cast, TESSERA_CAST_FIELDS, TESSERA_NONE, cast_simd, 384)                                               \
  X(stochastic_cast, TESSERA_STOCHASTIC_CAST_FIELDS, TESSERA_STOCHASTIC_CAST_PARAMS, stochastic_cast_simd, \
    448)
TESSERA_DECLARE_FAMILY(cast, TESSERA_CAST_CODELETS)
TESSERA_POSITIONS(stochastic_cast_param, TESSERA_STOCHASTIC_CAST_PARAMS)

}  // namespace tessera::kernels
