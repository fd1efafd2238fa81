// The scale of a loss in training with 16-bit gradients (Micikevicius et al. 2018).
#pragma once

#include <tessera/graph.h>

#include <optional>

namespace tessera::graph {

/// Throws UsageError for a scale that is none.
void check_loss_scale(const LossScale& scale);

/// A loss times its scale, and what becomes of the scale after a step.
class ScaledLoss {
 public:
  /// Adds the product, and the state of a scale that may change.
  ScaledLoss(Value loss, const LossScale& scale);

  Value loss() const { return loss_; }
  bool may_change() const { return scale_.has_value(); }
  /// A gradient of loss(), in FP32, divided by the scale.
  Value unscaled(Value gradient);

  // Of a scale that may change, with the sum of the squares of all gradients, which is infinite or NaN where
  // one of them is.
  /// The learning rate, or NaN for a step that is left out.
  Value lr_unless_skipped(Value lr, Value squares) const { return lr + (squares - squares); }
  /// How many steps were left out before.
  Value skipped_steps() const { return *skipped_; }
  /// Adds what scale and counters become.
  void adapt(Value squares) const;

 private:
  LossScale options_;
  Value loss_;
  std::optional<Value> scale_, inverse_, good_, skipped_;
};

}  // namespace tessera::graph
