// Conversion between the floating-point types, u32 and i32.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

/// Fields of one shape, each f32, f16, bf16, u32 or i32. Rounds once, to nearest even; values beyond the
/// type become infinity; NaN stays NaN. To integers: converted().
#define TESSERA_CAST_FIELDS(X) X(in) X(out, .access = program::Access::out)

#define TESSERA_CAST_CODELETS(X) X(cast, TESSERA_CAST_FIELDS, TESSERA_NONE, cast_simd, 384)
TESSERA_DECLARE_FAMILY(cast, TESSERA_CAST_CODELETS)

}  // namespace tessera::kernels
