// Softmax with cross-entropy.
#pragma once

#include "ops/map/map.h"

namespace tessera::ops {

/// For each column of logits (classes × columns), p being its softmax and c its label: loss = −log p(c), and
/// gradient(i) = scale · (p(i) − [i = c]). FP32. A scale of 1/columns makes it the gradient of the mean loss.
struct SoftmaxCrossEntropyProblem {
  uint32_t classes = 0;
  uint32_t columns = 0;
  float scale = 1;
};

/// Operands "logits", "labels" (1 × columns, u32), "gradient", "loss" (1 × columns). Throws UsageError
/// without classes.
MapOperation operation_of(const SoftmaxCrossEntropyProblem& problem);

}  // namespace tessera::ops
