// Softmax with cross-entropy, and its gradient.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

#define TESSERA_SOFTMAX_FIELDS(X) \
  X(logits) X(labels) X(gradient, .access = program::Access::out) X(loss, .access = program::Access::out)
#define TESSERA_SOFTMAX_PARAMS(X) X(scale)

namespace softmax_field {
enum : size_t { TESSERA_SOFTMAX_FIELDS(TESSERA_POSITION) count };
}
namespace softmax_param {
enum : size_t { TESSERA_SOFTMAX_PARAMS(TESSERA_POSITION) count };
}

/// For each column j, p being the softmax of its logits and c its label: loss(0, j) = −log p(c), and
/// gradient(i, j) = scale · (p(i) − [i = c]). Fields "logits" (classes × columns, f32), "labels" (1 ×
/// columns, integers), "gradient" (classes × columns, f32), "loss" (1 × columns, f32). One parameter, the
/// bits of the scale (param_of). A label beyond the classes makes the loss and the gradient of its column
/// NaN.
extern const program::Codelet softmax_cross_entropy_codelet;

std::span<const ListedCodelet> softmax_codelets();

}  // namespace tessera::kernels
