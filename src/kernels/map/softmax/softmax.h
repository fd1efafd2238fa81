// Softmax and cross-entropy of columns of logits, with the gradient.
#pragma once

#include "program/codelet.h"

namespace tessera::kernels {

/// For each column j of `logits` (classes × columns), p being its softmax and c its label:
/// loss(0, j) = −log p(c), and gradient(i, j) = scale · (p(i) − [i = c]). FP32; a label beyond the classes
/// makes both NaN. Rows of logits and gradient must be contiguous.
void apply_softmax_cross_entropy(const program::FieldView& logits, const program::FieldView& labels,
                                 float scale, const program::FieldView& loss,
                                 const program::FieldView& gradient);

}  // namespace tessera::kernels
