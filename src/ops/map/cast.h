// A matrix in another floating-point type.
#pragma once

#include "ops/map/map.h"

namespace tessera::ops {

/// out = in, rows × cols, each of f32, f16 or bf16. Rounds once, to nearest even; overflow is
/// infinity.
struct CastProblem {
  Type from = Type::f32;
  Type to = Type::f16;
  uint32_t rows = 0;
  uint32_t cols = 0;
};

/// Operands "in", "out".
MapOperation operation_of(const CastProblem& problem);

}  // namespace tessera::ops
