// Steps of optimizers, element by element: their numbers, and their SIMD form.
#pragma once

#include <cstdint>

#include "program/codelet.h"

namespace tessera::kernels {

/// SGD: velocity = momentum · velocity + gradient_scale (gradient + decay · weight); weight −= lr · velocity.
struct SgdStep {
  float lr = 0;
  float gradient_scale = 1;  ///< 1, or with momentum the factor of the gradient
  float decay = 0;
  float momentum = 0;
  bool nesterov = false;
};

struct AdamSettings {
  float beta1 = 0;
  float beta2 = 0;
  float epsilon = 0;
  float decay = 0;
  bool decoupled = false;
  bool bias_correction = true;
};

/// Adam, with g = gradient + gradient_decay · weight:
/// first += (1 − β1)(g − first); second = β2 · second + (1 − β2) g²;
/// target = keep · weight − lr · first / (second_scale · √second + epsilon).
/// The target is the weight, or another matrix for a direction.
struct AdamStep {
  float gradient_decay = 0;  ///< 0 if the decay is decoupled
  float keep = 1;            ///< 1 − lr · decay if decoupled
  float from_gradient = 0;   ///< 1 − β1
  float beta2 = 0;
  float from_square = 0;   ///< 1 − β2
  float lr = 0;            ///< the learning rate divided by the first moment's bias correction
  float second_scale = 0;  ///< 1 / √(the second moment's bias correction)
  float epsilon = 0;
};

/// A step with PyTorch's bias corrections, in FP64; `step` counts from 1.
AdamStep adam_step(float lr, uint32_t step, const AdamSettings& settings);
/// A step that computes the direction that AdamW subtracts from a weight, times the learning rate.
AdamStep adam_direction_step(uint32_t step, const AdamSettings& settings);

/// Apply a step. All fields have contiguous rows; a velocity without data stands for none.
void apply_sgd(const SgdStep& step, const program::FieldView& gradient, const program::FieldView& velocity,
               const program::FieldView& weight);
void apply_adam(const AdamStep& step, const program::FieldView& gradient, const program::FieldView& first,
                const program::FieldView& second, const program::FieldView& weight,
                const program::FieldView& target);

}  // namespace tessera::kernels
