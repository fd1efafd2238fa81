// Steps of optimizers.
#pragma once

#include "ops/map/map.h"

namespace tessera::ops {

/// velocity = momentum · velocity + gradient, then weight = weight − rate · velocity: stochastic gradient
/// descent with momentum as PyTorch has it, in place. All rows × cols of one type: f32, f16 or bf16.
struct MomentumProblem {
  Type type = Type::f32;
  uint32_t rows = 0;
  uint32_t cols = 0;
};

/// Operands "gradient", "rates" (1 × 2, f32: learning rate, momentum), "velocity", "weight".
MapOperation operation_of(const MomentumProblem& problem);

}  // namespace tessera::ops
