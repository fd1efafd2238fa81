// SIMD form of softmax and cross-entropy. FP32 arithmetic on f32, f16 and bf16, rounded once.
#pragma once

#include "program/codelet.h"

namespace tessera::kernels {

/// out = the softmax of each column of `in`. False if neither rows nor columns of both are contiguous, for
/// which there is no SIMD form. May be in place.
bool apply_softmax(const program::FieldView& in, const program::FieldView& out);

/// For each column j of `logits` (classes × columns), p being its softmax and c its label:
/// loss(0, j) = −log p(c), and gradient(i, j) = scale · (p(i) − [i = c]); a gradient without data is left
/// out. A label beyond the classes makes both NaN. False as above. The gradient may be in place of the
/// logits.
bool apply_softmax_cross_entropy(const program::FieldView& logits, const program::FieldView& labels,
                                 float scale, const program::FieldView& loss,
                                 const program::FieldView& gradient);

}  // namespace tessera::kernels
