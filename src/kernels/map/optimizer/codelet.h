// Steps of optimizers, in place.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

#define TESSERA_SGD_FIELDS(X) X(gradient) X(rate) X(weight, .access = program::Access::inout)
#define TESSERA_SGD_PARAMS(X) X(decay)
#define TESSERA_MOMENTUM_FIELDS(X) \
  X(gradient)                      \
  X(rate) X(velocity, .access = program::Access::inout) X(weight, .access = program::Access::inout)
#define TESSERA_MOMENTUM_PARAMS(X) X(decay) X(momentum) X(nesterov)
#define TESSERA_ADAM_FIELDS(X)                      \
  X(gradient)                                       \
  X(rate)                                           \
  X(step)                                           \
  X(first_moment, .access = program::Access::inout) \
  X(second_moment, .access = program::Access::inout) X(weight, .access = program::Access::inout)
#define TESSERA_ADAM_PARAMS(X) X(decay) X(beta1) X(beta2) X(epsilon) X(decoupled)

namespace sgd_field {
enum : size_t { TESSERA_SGD_FIELDS(TESSERA_POSITION) count };
}
namespace sgd_param {
enum : size_t { TESSERA_SGD_PARAMS(TESSERA_POSITION) count };
}
namespace momentum_field {
enum : size_t { TESSERA_MOMENTUM_FIELDS(TESSERA_POSITION) count };
}
namespace momentum_param {
enum : size_t { TESSERA_MOMENTUM_PARAMS(TESSERA_POSITION) count };
}
namespace adam_field {
enum : size_t { TESSERA_ADAM_FIELDS(TESSERA_POSITION) count };
}
namespace adam_param {
enum : size_t { TESSERA_ADAM_PARAMS(TESSERA_POSITION) count };
}

// "gradient" and "weight" are f32, f16 or bf16 of one shape; what an optimizer keeps for each element is f32;
// the rate is 1 × 1 of f32. Parameters are the bits of FP32 numbers (param_of), or 0 and 1.

/// Stochastic gradient descent, with g = gradient + decay · weight: weight −= rate · g.
extern const program::Codelet sgd_codelet;

/// The same with velocity = momentum · velocity + g: weight −= rate · velocity, or with Nesterov's momentum
/// rate · (g + momentum · velocity).
extern const program::Codelet momentum_codelet;

/// Adam, and if decoupled AdamW, as PyTorch defines them. "step" (1 × 1, u32) is 1 for the first.
extern const program::Codelet adam_codelet;

std::span<const ListedCodelet> optimizer_codelets();

}  // namespace tessera::kernels
