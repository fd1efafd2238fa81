// Products with a dense weight in panels on a host, for activations [batch, features] as frameworks have
// them: Y = activation(X·Wᵀ + bias), dX = activation(dY·W + bias), and dW = dYᵀ·X. Planned, and added to a
// tile program.
#pragma once

#include <tessera/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/common/window.h"
#include "machine/model/machine.h"
#include "ops/builder.h"
#include "ops/layout.h"
#include "ops/map/map.h"
#include "ops/plan.h"
#include "ops/product_problem.h"

namespace tessera::ops {

/// A product with a weight of m × k for a batch of n. Matrices are f32, f16 or bf16; sums are FP32.
struct HostDenseProblem {
  uint32_t m = 0;
  uint32_t k = 0;
  uint32_t n = 0;
  ProductKind product = ProductKind::forward;
  Type weights = Type::f32;                  ///< type of W or dW
  Type values = Type::f32;                   ///< type of X, Y and their gradients
  Activation activation = Activation::none;  ///< of Y or dX, after the bias
  bool bias = false;                         ///< one f32 number per feature of Y or dX
  bool relu = false;  ///< input gradient: dX is multiplied by the derivative of the ReLU that computed X
  /// Whether the result is added to the previous one, before the activation. Otherwise the previous result is
  /// not read.
  bool adds = false;
  /// x holds images, positions × channels, and X the elements under the window in them. Of an input gradient,
  /// in f32, which is partitioned by channels and images, each element is the sum of what it gets in X.
  std::optional<kernels::Window> window = {};
  /// The layouts of X and Y (or their gradients) as matrices of features × batch, if callers bind them, in
  /// any strides and FP32; none: the features of a row of the batch are contiguous.
  struct Arrays {
    Layout x = Layout::column_major;
    Layout y = Layout::column_major;
  };
  std::optional<Arrays> arrays = {};

  PanelLayout layout() const { return {m, k}; }
};

/// How a product is partitioned over the threads of a host: vertex (i, j) on tile i · col_parts + j.
struct HostDensePartition {
  /// First unit of each part, and the end. Units are panels of W; for the input gradient, as many columns of
  /// dX as a panel has rows.
  std::vector<uint32_t> panel_begin;
  /// First row of the batch of each part, and the end; for the weight gradient, first column of W. An input
  /// gradient's parts are whole vectors, so that the bits of the result do not depend on the partition.
  std::vector<uint32_t> col_begin;

  uint32_t panel_parts() const { return static_cast<uint32_t>(panel_begin.size() - 1); }
  uint32_t col_parts() const { return static_cast<uint32_t>(col_begin.size() - 1); }
  uint32_t tiles_used() const { return panel_parts() * col_parts(); }
};

using HostDensePlan = Plan<HostDensePartition>;

/// The knobs of a partition: the numbers of its parts.
struct HostDenseSchedule {
  uint32_t row_parts = 1;
  uint32_t col_parts = 1;

  bool operator==(const HostDenseSchedule&) const = default;
};

/// Partitions the product over the machine's threads by its cost; small products take one thread. Throws
/// UsageError for types or an epilogue that the product does not support, for knobs that do not exist or
/// leave no partition, and for a machine that is not a host.
HostDensePlan plan_host_dense(const HostDenseProblem& problem, const machine::Machine& machine,
                              const ForcedKnobs& force = {});
/// Throws UsageError for unknown knobs.
void check_host_dense_knobs(const ForcedKnobs& force);

/// Operands of a program. Each product reads two of W, X and Y and writes the third.
struct HostDenseOperands {
  Operand w;                         ///< W or dW in panels
  Operand x;                         ///< X or dX: n × k; or images, or their gradients
  Operand y;                         ///< Y or dY: n × m
  std::optional<Operand> bias = {};  ///< 1 × m or 1 × k, f32
  std::optional<Operand> scalars =
      {};  ///< 1 × 2, f32: factors of the product, and of the previous result; none: 1
  std::optional<Operand> relu = {};  ///< of dX's shape: result of the ReLU, which is the forward product's x
  std::optional<Operand> window = {};  ///< the window as a constant, which build functions add
};

/// Adds the product; matrices may have any row stride. Plans of plan_host_dense() give the same bits.
/// Throws UsageError for operands of another type or shape.
program::StepId build_host_dense(const Builder& builder, const HostDenseProblem& problem,
                                 const HostDensePlan& plan, const HostDenseOperands& operands);

/// An operation that reads dW in panels, such as the step of an optimizer. `operands` are the operation's
/// operands in order, without dW and constants.
struct GradientConsumer {
  MapOperation operation;
  size_t gradient = 0;  ///< position of dW among the operation's operands
  std::vector<Operand> operands;
};

/// Adds a weight gradient and its consumer as one superstep, strip by strip: each thread computes a strip of
/// dW that fits in its L2 cache, from which the consumer reads it. So dW as a whole does not exist, and
/// `operands.w` is not used, unless the product adds to it. The result has the same bits as two separate
/// steps.
program::StepId build_host_dense_strips(const Builder& builder, const HostDenseProblem& problem,
                                        const HostDensePlan& plan, const HostDenseOperands& operands,
                                        const GradientConsumer& consumer);

}  // namespace tessera::ops
