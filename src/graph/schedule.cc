// Learning rates by step, and what packing changes of an optimizer.
#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/optimizers.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

#include "base/names.h"

namespace tessera::graph {
namespace {

constexpr base::Names<ScheduleKind, 5> kScheduleKinds{"schedule of the learning rate",
                                                      {"constant", "linear", "polynomial", "cosine", "step"}};

void check_factor(double packing_factor) {
  if (!std::isfinite(packing_factor) || packing_factor < 1)
    throw UsageError(fmt::format("a packing factor of {}: a pack holds at least 1 sequence", packing_factor));
}

void check_step_decay(const Schedule& s) {
  if (s.kind != ScheduleKind::step) {
    const Schedule usual;
    if (s.decay_at != usual.decay_at || s.decay != usual.decay)
      throw UsageError(fmt::format("a {} schedule has no decay; it is for step", name_of(s.kind)));
    return;
  }
  if (s.end != 0) throw UsageError("a step schedule has no end: leave it out, or give its decay");
  if (s.decay_at.empty())
    throw UsageError("a step schedule names no fraction of the steps: name at least one");
  for (double fraction : s.decay_at)
    if (!(fraction > 0 && fraction < 1))
      throw UsageError(
          fmt::format("a schedule decays after {} of the steps; it must be between 0 and 1", fraction));
  if (!(s.decay > 0 && s.decay <= 1))
    throw UsageError(
        fmt::format("a schedule multiplies the learning rate by {}; it must be above 0, at most 1", s.decay));
}

/// The number of the step from which on the rate is lower.
uint64_t first_step(double fraction, uint64_t steps) {
  return static_cast<uint64_t>(std::llround(fraction * static_cast<double>(steps)));
}

}  // namespace

std::string_view name_of(ScheduleKind kind) { return kScheduleKinds.of(kind); }
ScheduleKind schedule_named(std::string_view name) { return kScheduleKinds.named(name); }

void check(const Schedule& s) {
  if (!std::isfinite(s.power) || s.power <= 0)
    throw UsageError(fmt::format("the power of a schedule is {}; it must be positive", s.power));
  if (s.power != 1 && s.kind != ScheduleKind::polynomial)
    throw UsageError(fmt::format("a {} schedule has no power; it is for polynomial", name_of(s.kind)));
  if (!std::isfinite(s.end) || s.end < 0 || s.end > 1)
    throw UsageError(fmt::format("a schedule ends with {} of the learning rate; it must be 0 to 1", s.end));
  check_step_decay(s);
  if (s.kind == ScheduleKind::constant) {
    if (s.end != 0) throw UsageError("a constant schedule has no end: leave it out, or choose another kind");
  } else if (s.steps <= s.warmup) {
    throw UsageError(fmt::format("a {} schedule of {} steps, {} of them warm-up, leaves none to decay in",
                                 name_of(s.kind), s.steps, s.warmup));
  }
}

double Schedule::factor(uint64_t finished) const {
  if (finished < warmup) return static_cast<double>(finished) / static_cast<double>(warmup);
  if (kind == ScheduleKind::constant) return 1;
  if (kind == ScheduleKind::step) {
    double product = 1;
    for (double fraction : decay_at)
      if (finished >= first_step(fraction, steps)) product *= decay;
    return product;
  }
  if (finished >= steps) return end;
  const double left = static_cast<double>(steps - finished) / static_cast<double>(steps - warmup);
  switch (kind) {
    case ScheduleKind::polynomial: return end + (1 - end) * std::pow(left, power);
    case ScheduleKind::cosine: return end + (1 - end) * (1 - std::cos(std::numbers::pi * left)) / 2;
    default: return end + (1 - end) * left;
  }
}

Betas betas_of_packs(Betas unpacked, double packing_factor) {
  check_factor(packing_factor);
  for (double beta : {unpacked.beta1, unpacked.beta2})
    if (!(beta >= 0 && beta < 1)) throw UsageError(fmt::format("a beta is {}; it must be in [0, 1)", beta));
  return {std::pow(unpacked.beta1, packing_factor), std::pow(unpacked.beta2, packing_factor)};
}

uint32_t packs_per_batch(uint32_t sequences, double packing_factor) {
  check_factor(packing_factor);
  return static_cast<uint32_t>(std::max(1L, std::lround(sequences / packing_factor)));
}

}  // namespace tessera::graph
