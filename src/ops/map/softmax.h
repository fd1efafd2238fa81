// Softmax, and softmax with cross-entropy.
#pragma once

#include <string>
#include <vector>

#include "ops/map/map.h"

namespace tessera::ops {

/// out = the softmax of each column of a rows × cols matrix if over_rows, else of each row: f32, f16 or bf16,
/// computed in FP32. The largest element is subtracted first, so that nothing overflows. May be in place.
struct SoftmaxProblem {
  uint32_t rows = 0;
  uint32_t cols = 0;
  bool over_rows = true;
  Type type = Type::f32;
};

/// Operands "in", "out".
MapOperation operation_of(const SoftmaxProblem& problem);

/// For each column of logits (classes × columns), p being its softmax and c its label: loss = −log p(c), and
/// gradient(i) = scale · (p(i) − [i = c]). Logits and gradient are f32, f16 or bf16, the loss f32, all
/// computed in FP32. A scale of 1/columns makes it the gradient of the mean loss. With weights, a column's
/// loss and gradient are multiplied by its weight instead of the scale, and are 0 where the weight is 0.
struct SoftmaxCrossEntropyProblem {
  uint32_t classes = 0;
  uint32_t columns = 0;
  float scale = 1;
  Type type = Type::f32;        ///< type of logits and gradient
  bool classes_in_rows = true;  ///< false: logits are columns × classes, with one sample per row
  bool gradient = true;         ///< false: computes the loss alone
  bool weighted = false;        ///< whether columns have weights; requires `gradient`
};

/// Operands "logits", "labels" (u32), "weights" (f32, if weighted), "gradient" (if computed; may be in place
/// of the logits), "loss". Labels, weights and loss are 1 × columns; without classes_in_rows all are
/// transposed, and labels and loss columns × 1. Throws UsageError without classes.
MapOperation operation_of(const SoftmaxCrossEntropyProblem& problem);

/// How a cross-entropy is divided: each column is one vertex's, or its classes are computed on the tiles
/// where they lie.
struct CrossEntropyPartition {
  MapPartition columns = {};
  bool spreads_classes = false;
  /// If so: the number of groups of neighbouring tiles that combine their terms before these are combined
  /// over all groups; 0: no groups.
  uint32_t groups = 0;

  bool operator==(const CrossEntropyPartition&) const = default;
};

std::string to_string(const CrossEntropyPartition& partition);

using CrossEntropyPlan = Plan<CrossEntropyPartition>;

/// Where classes are spread, each tile has some classes of all columns, and computes their gradient. Logits
/// that lie so stay where they are.
CrossEntropyPlan plan(const Builder& builder, const SoftmaxCrossEntropyProblem& problem,
                      const std::vector<Operand>& operands);
program::StepId build(const Builder& builder, const SoftmaxCrossEntropyProblem& problem,
                      const CrossEntropyPlan& plan, const std::vector<Operand>& operands);

}  // namespace tessera::ops
