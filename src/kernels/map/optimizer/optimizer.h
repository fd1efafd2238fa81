// Steps of optimizers, element by element.
#pragma once

#include "program/codelet.h"

namespace tessera::kernels {

/// velocity = momentum · velocity + gradient; weight = weight − rate · velocity: SGD with momentum as
/// PyTorch has it. Fields of one shape, FP32 with contiguous rows.
void apply_momentum(float rate, float momentum, const program::FieldView& gradient,
                    const program::FieldView& velocity, const program::FieldView& weight);

}  // namespace tessera::kernels
