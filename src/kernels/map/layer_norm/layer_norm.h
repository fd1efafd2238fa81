// SIMD form of layer normalisation. FP32 arithmetic on f32, f16 and bf16, rounded once.
#pragma once

#include "program/codelet.h"

namespace tessera::kernels {

/// Fields as features × samples; weight and bias are features × 1, mean and rstd 1 × samples.
struct LayerNorm {
  program::FieldView x, weight, bias, mean, rstd, y;
  float epsilon = 0;
  bool centred = true;
};
struct LayerNormInputGradient {
  program::FieldView dy, x, mean, rstd, weight, dx;
  bool centred = true;
};
struct LayerNormWeightGradient {
  program::FieldView dy, x, mean, rstd, dbias, dweight;
};

/// False if neither features nor samples are contiguous in all matrices, for which there is no SIMD form.
bool apply_layer_norm(const LayerNorm& fields);
bool apply_layer_norm_input_gradient(const LayerNormInputGradient& fields);
bool apply_layer_norm_weight_gradient(const LayerNormWeightGradient& fields);

}  // namespace tessera::kernels
