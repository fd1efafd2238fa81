// Softmax with cross-entropy where the classes of a column lie on several tiles: the terms of each tile's
// classes, which are joined; then the loss and the gradient.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

/// Rows of terms: of each column the largest logit, the sum of exponentials of differences to it, and the
/// logit of the label, or 0 where that is another tile's.
inline constexpr uint32_t kCrossEntropyTerms = 3;

/// "terms" (3 × columns, f32) of the logits of some classes (f32, f16 or bf16; classes × columns) from class
/// "first" on, and "labels" (1 × columns, integers); logits and labels are transposed if "classes_in_rows" is
/// 0. −∞ adds nothing; NaN and +∞ make the sum NaN.
#define TESSERA_CLASS_TERMS_FIELDS(X) X(logits) X(labels) X(terms, .access = program::Access::out)
#define TESSERA_CLASS_TERMS_PARAMS(X) X(classes_in_rows) X(first)

/// out (3 × columns) = the terms of all classes, from the terms of several parts, one below the other.
#define TESSERA_JOIN_CLASS_TERMS_FIELDS(X) X(terms) X(out, .access = program::Access::out)

/// loss = weight · (log Σ exp(logits) − logit of the label), from the terms of all classes. Weights are f32
/// and of the labels' shape, as the loss. A weight of 0 makes it 0, otherwise a label that is not one of
/// "classes" NaN.
#define TESSERA_CLASS_LOSS_FIELDS(X) X(terms) X(labels) X(weights) X(loss, .access = program::Access::out)
#define TESSERA_CLASS_LOSS_PARAMS(X) X(classes_in_rows) X(classes)

/// gradient(i, j) = weight(j) · (p(i) − [first + i = label(j)]), p being the softmax, of the logits of some
/// classes from class "first" on, whose shape and type it has. May be in place.
#define TESSERA_CLASS_GRADIENT_FIELDS(X) \
  X(logits) X(labels) X(weights) X(terms) X(gradient, .access = program::Access::out)
#define TESSERA_CLASS_GRADIENT_PARAMS(X) X(classes_in_rows) X(classes) X(first)

#define TESSERA_CROSS_ENTROPY_CODELETS(X)                                              \
  X(class_terms, TESSERA_CLASS_TERMS_FIELDS, TESSERA_CLASS_TERMS_PARAMS, nullptr, 512) \
  X(join_class_terms, TESSERA_JOIN_CLASS_TERMS_FIELDS, TESSERA_NONE, nullptr, 384)     \
  X(class_loss, TESSERA_CLASS_LOSS_FIELDS, TESSERA_CLASS_LOSS_PARAMS, nullptr, 320)    \
  X(class_gradient, TESSERA_CLASS_GRADIENT_FIELDS, TESSERA_CLASS_GRADIENT_PARAMS, nullptr, 512)
TESSERA_DECLARE_FAMILY(cross_entropy, TESSERA_CROSS_ENTROPY_CODELETS)
TESSERA_POSITIONS(class_terms_param, TESSERA_CLASS_TERMS_PARAMS)
TESSERA_POSITIONS(class_loss_param, TESSERA_CLASS_LOSS_PARAMS)
TESSERA_POSITIONS(class_gradient_param, TESSERA_CLASS_GRADIENT_PARAMS)

}  // namespace tessera::kernels
