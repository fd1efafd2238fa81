// The scale of a loss in training with 16-bit gradients (Micikevicius et al. 2018).
#pragma once

#include <tessera/graph.h>

#include <optional>

namespace tessera::graph {

/// Bounds of a scale that may change.
inline constexpr double kLeastLossScale = 1, kLargestLossScale = 0x1p24;

/// Throws UsageError for an invalid scale.
void check_loss_scale(const LossScale& scale);

/// A loss times its scale, and the update of the scale after a step.
class ScaledLoss {
 public:
  /// Adds the product of loss and scale, and the state of a scale that may change.
  ScaledLoss(Value loss, const LossScale& scale);

  Value loss() const { return loss_; }
  bool may_change() const { return scale_.has_value(); }
  /// A gradient of loss(), in FP32, divided by the scale.
  Value unscaled(Value gradient);

  // For a scale that may change. `squares` is the sum of the squares of all gradients, which is infinite or
  // NaN if one of them is.
  /// The learning rate, or NaN for a step that is skipped.
  Value lr_unless_skipped(Value lr, Value squares) const { return lr + (squares - squares); }
  /// Number of steps that were skipped before.
  Value skipped_steps() const { return *skipped_; }
  /// Adds the updates of the scale and the counters.
  void adapt(Value squares) const;

 private:
  LossScale options_;
  Value loss_;
  std::optional<Value> scale_, inverse_, good_, skipped_;
};

}  // namespace tessera::graph
