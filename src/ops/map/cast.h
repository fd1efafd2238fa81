// A matrix in another type.
#pragma once

#include "ops/map/map.h"

namespace tessera::ops {

/// out = in, rows × cols, each of f32, f16, bf16, u32 or i32. Rounds once, to nearest even; overflow is
/// infinity. To an integer, fractions are cut off, NaN becomes 0, and a number that the type does not hold
/// its nearest; integers become others modulo 2^32.
struct CastProblem {
  Type from = Type::f32;
  Type to = Type::f16;
  uint32_t rows = 0;
  uint32_t cols = 0;
};

/// Operands "in", "out".
MapOperation operation_of(const CastProblem& problem);

}  // namespace tessera::ops
