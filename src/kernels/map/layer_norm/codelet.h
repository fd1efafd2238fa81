// Layer normalisation (Ba et al. 2016) and root mean square normalisation (Zhang & Sennrich 2019) on hosts,
// and their gradients.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

/// For each column of x (features × samples), or each row if "features_in_rows" is 0: mean, rstd = 1 /
/// √(variance + epsilon), both f32, and y = (x − mean) · rstd · weight + bias. Weight and bias have a row for
/// each feature, mean and rstd a column for each sample, or the reverse. x, y, weight and bias are of one
/// type: f32, f16 or bf16. "epsilon" is the bits of an FP32 number (param_of). If "centred" is 0, the mean
/// counts as 0, and the variance is the mean square. y may be in place of x.
#define TESSERA_LAYER_NORM_FIELDS(X)      \
  X(x)                                    \
  X(weight)                               \
  X(bias)                                 \
  X(mean, .access = program::Access::out) \
  X(rstd, .access = program::Access::out) X(y, .access = program::Access::out)
#define TESSERA_LAYER_NORM_PARAMS(X) X(features_in_rows) X(epsilon) X(centred)

/// dx, with g = dy · weight and h = (x − mean) · rstd: rstd · (g − mean of g − h · mean of g · h); if
/// "centred" is 0, without the mean of g.
#define TESSERA_LAYER_NORM_INPUT_GRADIENT_FIELDS(X) \
  X(dy) X(x) X(mean) X(rstd) X(weight) X(dx, .access = program::Access::out)
#define TESSERA_LAYER_NORM_INPUT_GRADIENT_PARAMS(X) X(features_in_rows) X(centred)

/// For each feature the sums over samples of dy, and of dy · (x − mean) · rstd.
#define TESSERA_LAYER_NORM_WEIGHT_GRADIENT_FIELDS(X) \
  X(dy)                                              \
  X(x) X(mean) X(rstd) X(dbias, .access = program::Access::out) X(dweight, .access = program::Access::out)
#define TESSERA_LAYER_NORM_WEIGHT_GRADIENT_PARAMS(X) X(features_in_rows)

#define TESSERA_LAYER_NORM_CODELETS(X)                                                    \
  X(layer_norm, TESSERA_LAYER_NORM_FIELDS, TESSERA_LAYER_NORM_PARAMS, layer_norm_simd, 0) \
  X(layer_norm_input_gradient, TESSERA_LAYER_NORM_INPUT_GRADIENT_FIELDS,                  \
    TESSERA_LAYER_NORM_INPUT_GRADIENT_PARAMS, layer_norm_input_gradient_simd, 0)          \
  X(layer_norm_weight_gradient, TESSERA_LAYER_NORM_WEIGHT_GRADIENT_FIELDS,                \
    TESSERA_LAYER_NORM_WEIGHT_GRADIENT_PARAMS, layer_norm_weight_gradient_simd, 0)
TESSERA_DECLARE_FAMILY(layer_norm, TESSERA_LAYER_NORM_CODELETS)
TESSERA_POSITIONS(layer_norm_param, TESSERA_LAYER_NORM_PARAMS)
TESSERA_POSITIONS(layer_norm_input_gradient_param, TESSERA_LAYER_NORM_INPUT_GRADIENT_PARAMS)

}  // namespace tessera::kernels
