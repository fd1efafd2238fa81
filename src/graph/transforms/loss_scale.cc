#include "graph/transforms/loss_scale.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <cmath>
#include <cstdint>

#include "graph/operation.h"

namespace tessera::graph {
namespace {

/// FP32 counts good steps one by one up to this.
constexpr uint32_t kMostGoodSteps = 1U << 24;
/// FP32 has scales between these, and their reciprocals.
constexpr double kLeastFactor = 0x1p-126, kLargestFactor = 0x1p126;

}  // namespace

void check_loss_scale(const LossScale& scale) {
  if (!(std::isfinite(scale.initial) && scale.initial > 0))
    throw UsageError(fmt::format("the loss scale is {}; it must be positive", scale.initial));
  if (scale.initial < kLeastFactor || scale.initial > kLargestFactor)
    throw UsageError(
        fmt::format("the loss scale is {}; it must be from 2^-126 to 2^126, so that FP32 has it and its "
                    "reciprocal",
                    scale.initial));
  if (scale.grow_after > 0 && !(scale.initial >= kLeastLossScale && scale.initial <= kLargestLossScale))
    throw UsageError(fmt::format("the loss scale begins with {}; one that may change must be from {} to {}",
                                 scale.initial, kLeastLossScale, kLargestLossScale));
  if (scale.grow_after > kMostGoodSteps)
    throw UsageError(fmt::format(
        "the loss scale grows after {} good steps; it must be at most {}, up to which FP32 counts them",
        scale.grow_after, kMostGoodSteps));
}

ScaledLoss::ScaledLoss(Value loss, const LossScale& scale) : options_(scale) {
  const Value wide = cast(loss, Type::f32);
  if (scale.grow_after == 0) {
    loss_ = wide * scale.initial;
    return;
  }
  Graph& graph = loss.owner();
  const TensorType scalar{Type::f32, {}, {}, {}};
  scale_ = graph.state("loss_scale", scalar, Initial::constant(scale.initial));
  good_ = graph.state("loss_scale.good_steps", scalar);
  skipped_ = graph.state("loss_scale.skipped_steps", scalar);
  loss_ = wide * *scale_;
}

Value ScaledLoss::unscaled(Value gradient) {
  const Value wide = cast(gradient, Type::f32);
  if (!scale_) return wide * (1 / options_.initial);
  if (!inverse_) inverse_ = reciprocal(*scale_);
  return wide * *inverse_;
}

void ScaledLoss::adapt(Value squares) const {
  Graph& graph = squares.owner();
  const auto number = [&](double x) { return graph.constant("", {}, {static_cast<float>(x)}); };
  const Value difference = squares - squares, is_good = equal(difference, difference);
  const Value good = (*good_ + 1) * is_good, grows = less_equal(number(options_.grow_after), good);
  const Value grown = minimum(*scale_ * 2, number(kLargestLossScale)),
              halved = maximum(*scale_ * 0.5, number(kLeastLossScale));
  graph.assign(*scale_, where(is_good, where(grows, grown, *scale_), halved));
  graph.assign(*good_, where(grows, number(0), good));
  graph.assign(*skipped_, *skipped_ + (number(1) - is_good));
}

}  // namespace tessera::graph
