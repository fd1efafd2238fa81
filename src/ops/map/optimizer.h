// Steps of optimizers, in place, as PyTorch defines them. A step with a learning rate of NaN changes nothing.
#pragma once

#include "ops/map/map.h"

namespace tessera::ops {

/// Stochastic gradient descent, as torch.optim.SGD: g = gradient + decay · weight; if momentum is not 0,
/// velocity = momentum · velocity + g, which replaces g, or with Nesterov's momentum is added to it times
/// momentum; weight = weight − lr · g. Weight and gradient are rows × cols of f32, f16 or bf16. Before the
/// first step the velocity is zeros, which is equivalent to PyTorch's.
struct SgdProblem {
  Type weight = Type::f32;
  Type gradient = Type::f32;
  uint32_t rows = 0;
  uint32_t cols = 0;
  float momentum = 0;
  float decay = 0;  ///< weight_decay (L2)
  bool nesterov = false;
  /// Whether velocity = momentum · velocity + lr · g, and weight = weight − velocity; requires momentum.
  bool lr_in_velocity = false;
};

/// Operands "gradient", "lr" (1 × 1, f32), "velocity" (f32; only with momentum), "weight". Throws
/// UsageError for Nesterov's momentum without momentum, as PyTorch does.
MapOperation operation_of(const SgdProblem& problem);

/// torch.optim.Adam, or if decoupled torch.optim.AdamW. Elements whose gradient and weight are 0 stay 0.
struct AdamProblem {
  Type weight = Type::f32;
  Type gradient = Type::f32;
  uint32_t rows = 0;
  uint32_t cols = 0;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  float decay = 0;  ///< weight_decay
  bool decoupled = false;
  bool bias_correction = true;
};

/// Operands "gradient", "lr" (1 × 1, f32), "step" (1 × 1, u32: 1 for the first), "first_moment" and
/// "second_moment" (f32, zeros before the first step), "weight". Throws UsageError unless epsilon is positive
/// and each beta is at least 0 and below 1.
MapOperation operation_of(const AdamProblem& problem);

/// The direction that the decoupled form subtracts from the weight, times the learning rate. Operands
/// "gradient", "step", "weight", "first_moment", "second_moment", as above, and "direction" (f32).
MapOperation direction_of(const AdamProblem& problem);

}  // namespace tessera::ops
