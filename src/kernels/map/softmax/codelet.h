// Softmax, and softmax with cross-entropy and its gradient.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

/// out = the softmax of each column of "in" if "over_rows" is 1, otherwise of each row. Both of one shape and
/// type: f32, f16 or bf16. NaN and an infinite largest element make the column NaN.
#define TESSERA_SOFTMAX_FIELDS(X) X(in) X(out, .access = program::Access::out)
#define TESSERA_SOFTMAX_PARAMS(X) X(over_rows)

/// For each column j, p being the softmax of its logits and c its label: loss(0, j) = −log p(c), and
/// gradient(i, j) = scale · (p(i) − [i = c]). Fields "logits" and "gradient" (classes × columns, of f32, f16
/// or bf16), "labels" (1 × columns, integers), "loss" (1 × columns, f32), or the transposes of all if
/// "classes_in_rows" is 0. "scale" is the bits of an FP32 number (param_of). A label beyond the classes makes
/// the loss and the gradient of its column NaN.
#define TESSERA_CROSS_ENTROPY_FIELDS(X) \
  X(logits) X(labels) X(gradient, .access = program::Access::out) X(loss, .access = program::Access::out)
#define TESSERA_CROSS_ENTROPY_PARAMS(X) X(classes_in_rows) X(scale)

/// Loss and gradient times the weight of the column. Weights are f32, of the labels' shape. A weight of 0
/// makes both 0, whatever the label.
#define TESSERA_WEIGHTED_CROSS_ENTROPY_FIELDS(X) \
  X(logits)                                      \
  X(labels)                                      \
  X(weights) X(gradient, .access = program::Access::out) X(loss, .access = program::Access::out)
#define TESSERA_WEIGHTED_CROSS_ENTROPY_PARAMS(X) X(classes_in_rows)

/// Computes the loss alone.
#define TESSERA_CROSS_ENTROPY_LOSS_FIELDS(X) X(logits) X(labels) X(loss, .access = program::Access::out)
#define TESSERA_CROSS_ENTROPY_LOSS_PARAMS(X) X(classes_in_rows)

#define TESSERA_SOFTMAX_CODELETS(X)                                                                       \
  X(softmax, TESSERA_SOFTMAX_FIELDS, TESSERA_SOFTMAX_PARAMS, softmax_simd, 640)                           \
  X(softmax_cross_entropy, TESSERA_CROSS_ENTROPY_FIELDS, TESSERA_CROSS_ENTROPY_PARAMS,                    \
    softmax_cross_entropy_simd, 768)                                                                      \
  X(weighted_cross_entropy, TESSERA_WEIGHTED_CROSS_ENTROPY_FIELDS, TESSERA_WEIGHTED_CROSS_ENTROPY_PARAMS, \
    weighted_cross_entropy_simd, 768)                                                                     \
  X(softmax_cross_entropy_loss, TESSERA_CROSS_ENTROPY_LOSS_FIELDS, TESSERA_CROSS_ENTROPY_LOSS_PARAMS,     \
    softmax_cross_entropy_loss_simd, 640)
TESSERA_DECLARE_FAMILY(softmax, TESSERA_SOFTMAX_CODELETS)
TESSERA_POSITIONS(softmax_param, TESSERA_SOFTMAX_PARAMS)
TESSERA_POSITIONS(cross_entropy_param, TESSERA_CROSS_ENTROPY_PARAMS)
TESSERA_POSITIONS(weighted_cross_entropy_param, TESSERA_WEIGHTED_CROSS_ENTROPY_PARAMS)
TESSERA_POSITIONS(cross_entropy_loss_param, TESSERA_CROSS_ENTROPY_LOSS_PARAMS)

}  // namespace tessera::kernels
