// Sums of partial results.
#pragma once

#include "ops/map/map.h"

namespace tessera::ops {

/// out[j] = scale · Σ_p partials[p][j]: added in order in FP32, rounded once. partials × elements
/// of `from`, 1 × elements of `to`, each f32, f16 or bf16.
struct ReduceProblem {
  uint32_t partials = 0;
  uint32_t elements = 0;
  Type from = Type::f32;
  Type to = Type::f32;
  float scale = 1;
};

/// Operands "partials", "out".
MapOperation operation_of(const ReduceProblem& problem);

}  // namespace tessera::ops
