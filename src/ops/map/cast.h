// A matrix in another type.
#pragma once

#include "ops/map/map.h"

namespace tessera::ops {

/// out = in, rows × cols, each of f32, f16, bf16 or u32. Rounds once, to nearest even; overflow is
/// infinity. To u32, fractions are cut off; negative numbers and NaN become 0, and others too large 2^32 − 1.
struct CastProblem {
  Type from = Type::f32;
  Type to = Type::f16;
  uint32_t rows = 0;
  uint32_t cols = 0;
};

/// Operands "in", "out".
MapOperation operation_of(const CastProblem& problem);

}  // namespace tessera::ops
