// Steps of optimizers, in place.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

#define TESSERA_MOMENTUM_FIELDS(X) \
  X(gradient)                      \
  X(rates) X(velocity, .access = program::Access::inout) X(weight, .access = program::Access::inout)

namespace momentum_field {
enum : size_t { TESSERA_MOMENTUM_FIELDS(TESSERA_POSITION) count };
}

/// velocity = momentum · velocity + gradient, then weight = weight − rate · velocity: stochastic gradient
/// descent with momentum as PyTorch has it. Fields "gradient", "velocity" and "weight" of one shape, f32 or
/// on tiles f16, and "rates" (1 × 2, f32): the learning rate and the momentum.
extern const program::Codelet momentum_codelet;

std::span<const ListedCodelet> optimizer_codelets();

}  // namespace tessera::kernels
