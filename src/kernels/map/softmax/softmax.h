// SIMD form of softmax and cross-entropy. FP32 arithmetic on f32, f16 and bf16, rounded once.
#pragma once

#include "program/codelet.h"

namespace tessera::kernels {

/// out = the softmax of each column of `in`. Returns false, as there is no SIMD form, if neither rows nor
/// columns of both are contiguous. May be in place.
bool apply_softmax(const program::FieldView& in, const program::FieldView& out);

/// Fields of a loss: logits are classes × columns, labels, loss and weights 1 × columns. Weights without data
/// stand for none, and a gradient without data is not computed.
struct CrossEntropy {
  program::FieldView logits, labels, loss, gradient, weights;
  float scale = 1;  ///< scale of the gradient, without weights

  /// The factor of a column's gradient.
  float scale_of(uint32_t col) const;
  /// The loss of a column, given log Σ exp(logits).
  float loss_of(uint32_t col, float log_sum) const;
  /// Whether a column with non-zero weight has a label beyond the classes.
  bool is_invalid(uint32_t col) const;
  uint32_t label(uint32_t col) const;
};

/// For each column j of the logits, p being its softmax and c its label: loss(0, j) = −log p(c), and
/// gradient(i, j) = scale · (p(i) − [i = c]), or with weights, both times the column's weight. A label beyond
/// the classes makes both NaN, unless the weight is 0. Returns false as above. The gradient may be in place
/// of the logits.
bool apply_softmax_cross_entropy(const CrossEntropy& of);

}  // namespace tessera::kernels
