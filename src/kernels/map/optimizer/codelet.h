// Steps of optimizers, in place.
//
// "gradient" and "weight" are f32, f16 or bf16 of one shape; an optimizer's state for each element is f32;
// "lr" is 1 × 1, f32, and a step with an lr of NaN changes nothing. Parameters are the bits of FP32 numbers
// (param_of), or 0 and 1.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

/// Stochastic gradient descent, with g = gradient + decay · weight: weight −= lr · g.
#define TESSERA_SGD_FIELDS(X) X(gradient) X(lr) X(weight, .access = program::Access::inout)
#define TESSERA_SGD_PARAMS(X) X(decay)

/// Gradient descent with velocity = momentum · velocity + g: weight −= lr · velocity, or with Nesterov's
/// momentum, weight −= lr · (g + momentum · velocity). With lr_in_velocity, lr · g replaces g, and lr is not
/// applied again.
#define TESSERA_MOMENTUM_FIELDS(X) \
  X(gradient)                      \
  X(lr) X(velocity, .access = program::Access::inout) X(weight, .access = program::Access::inout)
#define TESSERA_MOMENTUM_PARAMS(X) X(decay) X(momentum) X(nesterov) X(lr_in_velocity)

/// Adam, and if decoupled AdamW, as PyTorch defines them. "step" (1 × 1, u32) counts from 1.
#define TESSERA_ADAM_FIELDS(X)                      \
  X(gradient)                                       \
  X(lr)                                             \
  X(step)                                           \
  X(first_moment, .access = program::Access::inout) \
  X(second_moment, .access = program::Access::inout) X(weight, .access = program::Access::inout)
#define TESSERA_ADAM_PARAMS(X) X(decay) X(beta1) X(beta2) X(epsilon) X(decoupled) X(bias_correction)

/// The direction that AdamW subtracts from a weight, times the learning rate, in f32: the moments' quotient,
/// plus decay · weight. "lr" only says whether the step is left out; the direction is 0 then.
#define TESSERA_ADAM_DIRECTION_FIELDS(X)            \
  X(gradient)                                       \
  X(lr)                                             \
  X(step)                                           \
  X(weight)                                         \
  X(first_moment, .access = program::Access::inout) \
  X(second_moment, .access = program::Access::inout) X(direction, .access = program::Access::out)
#define TESSERA_ADAM_DIRECTION_PARAMS(X) X(decay) X(beta1) X(beta2) X(epsilon) X(bias_correction)

#define TESSERA_OPTIMIZER_CODELETS(X)                                               \
  X(sgd, TESSERA_SGD_FIELDS, TESSERA_SGD_PARAMS, sgd_simd, 256)                     \
  X(momentum, TESSERA_MOMENTUM_FIELDS, TESSERA_MOMENTUM_PARAMS, momentum_simd, 320) \
  X(adam, TESSERA_ADAM_FIELDS, TESSERA_ADAM_PARAMS, adam_simd, 1024)                \
  X(adam_direction, TESSERA_ADAM_DIRECTION_FIELDS, TESSERA_ADAM_DIRECTION_PARAMS, adam_direction_simd, 1024)
TESSERA_DECLARE_FAMILY(optimizer, TESSERA_OPTIMIZER_CODELETS)
TESSERA_POSITIONS(sgd_param, TESSERA_SGD_PARAMS)
TESSERA_POSITIONS(momentum_param, TESSERA_MOMENTUM_PARAMS)
TESSERA_POSITIONS(adam_param, TESSERA_ADAM_PARAMS)
TESSERA_POSITIONS(adam_direction_param, TESSERA_ADAM_DIRECTION_PARAMS)

}  // namespace tessera::kernels
