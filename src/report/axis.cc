#include "report/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace tessera::report {
namespace {

constexpr double kPixelsPerTick = 64;    // for labels side by side
constexpr double kPixelsPerTickUp = 36;  // for labels above each other
constexpr size_t kMostTicks = 24;

struct Prefix {
  double factor;
  const char* name;
};

/// The largest prefix for which `value` is at least 1; the smallest for smaller values.
template <size_t Count>
const Prefix& prefix_of(double value, const std::array<Prefix, Count>& prefixes) {
  for (const Prefix& prefix : prefixes)
    if (std::abs(value) >= prefix.factor * (1 - 1e-9)) return prefix;
  return prefixes.back();
}

constexpr std::array<Prefix, 5> kBytes = {{{1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}, {1, "B"}}};
constexpr std::array<Prefix, 4> kSeconds = {{{1, "s"}, {1e-3, "ms"}, {1e-6, "µs"}, {1e-9, "ns"}}};
constexpr std::array<Prefix, 5> kNumbers = {{{1e12, " T"}, {1e9, " G"}, {1e6, " M"}, {1e4, " k"}, {0, ""}}};

std::string digits(double value) { return fmt::format("{:.4g}", value); }

/// `value` with the prefix that suits `like`.
std::string text_like(double value, double like, Unit unit) {
  switch (unit) {
    case Unit::bytes: {
      const Prefix& prefix = prefix_of(like, kBytes);
      return digits(value / prefix.factor) + " " + prefix.name;
    }
    case Unit::seconds: {
      const Prefix& prefix = prefix_of(like, kSeconds);
      return digits(value / prefix.factor) + " " + prefix.name;
    }
    case Unit::share: return digits(100 * value) + " %";
    case Unit::cycles:
    case Unit::number: {
      const Prefix& prefix = prefix_of(like, kNumbers);
      const double factor = prefix.factor == 1e4 ? 1e3 : prefix.factor;
      return factor == 0 ? digits(value) : digits(value / factor) + prefix.name;
    }
  }
  return digits(value);
}

/// Fractions of powers of two are easier to read than their decimals: 1/16.
std::string power_of_two_text(double value, Unit unit) {
  if (unit != Unit::number || value >= 1 || value < 1.0 / 4096) return text_like(value, value, unit);
  return fmt::format("1/{:.0f}", 1 / value);
}

}  // namespace

std::string count_text(uint64_t count) {
  std::string text = std::to_string(count);
  for (size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

double round_step(double step, double beside) {
  step = std::max(step, std::abs(beside) * 1e-9);
  if (!(step > 0)) return 1;
  const double decade = std::pow(10, std::floor(std::log10(step)));
  for (double factor : {1.0, 2.0, 5.0})
    if (factor * decade >= step * (1 - 1e-9)) return factor * decade;
  return 10 * decade;
}

std::string value_text(double value, Unit unit) {
  if (!std::isfinite(value)) return "–";
  if (unit == Unit::cycles)
    return std::abs(value) < 1e15 && value >= 0
               ? count_text(static_cast<uint64_t>(std::llround(value))) + " cycles"
               : digits(value) + " cycles";
  if (value == 0) return unit == Unit::number ? "0" : text_like(0, 1, unit);
  return text_like(value, value, unit);
}

void Range::include(double value, Growth growth) {
  if (!Scale::shows(value, growth)) return;
  least = std::min(least.value_or(value), value);
  most = std::max(most.value_or(value), value);
}

bool Scale::shows(double value, Growth growth) {
  return std::isfinite(value) && (growth == Growth::linear || value > 0);
}

Scale::Scale(const Axis& axis, const Range& data, double from_pixel, double to_pixel)
    : growth_(axis.growth), from_(from_pixel), to_(to_pixel) {
  const bool upwards = to_ < from_;  // pixels count downwards
  const double labels = std::abs(to_ - from_) / (upwards ? kPixelsPerTickUp : kPixelsPerTick);
  if (growth_ == Growth::linear)
    lay_linear(data, axis, labels);
  else
    lay_log(data, axis, labels);
  label_ticks(axis.unit);
}

void Scale::lay_linear(const Range& data, const Axis& axis, double labels) {
  least_ = axis.least.value_or(data.least.value_or(0));
  most_ = axis.most.value_or(data.most.value_or(least_ + 1));
  if (most_ <= least_) most_ = least_ + (least_ == 0 ? 1 : std::abs(least_) / 2);
  const double step = round_step((most_ - least_) / std::max(1.0, std::floor(labels)),
                                 std::max(std::abs(most_), std::abs(least_)));
  if (!axis.least) least_ = std::floor(least_ / step + 1e-9) * step;
  if (!axis.most) most_ = std::ceil(most_ / step - 1e-9) * step;
  const double first = std::ceil(least_ / step - 1e-9);
  for (double i = first; i * step <= most_ + step * 1e-6 && ticks_.size() < kMostTicks; ++i)
    ticks_.push_back({i * step, ""});
}

void Scale::lay_log(const Range& data, const Axis& axis, double labels) {
  const double base = growth_ == Growth::log2 ? 2 : 10;
  const auto power_of = [&](double value) { return std::log(value) / std::log(base); };
  const auto usable = [&](std::optional<double> wish) { return wish && shows(*wish) ? wish : std::nullopt; };
  const std::optional<double> begin = usable(axis.least);
  const std::optional<double> end = usable(axis.most);
  least_ = begin.value_or(data.least.value_or(1));
  most_ = std::max(end.value_or(data.most.value_or(least_)), least_);
  // Decades are long, so the axis may also end at their halves and fifths.
  const auto end_near = [&](double value, bool below) {
    const double power = std::pow(base, std::floor(power_of(value) + 1e-9));
    double found = below ? power : power * base;
    for (double factor : {1.0, 2.0, 5.0}) {
      if (factor >= base) break;
      if (below && factor * power <= value * (1 + 1e-9)) found = factor * power;
      if (!below && factor * power >= value * (1 - 1e-9)) return factor * power;
    }
    return found;
  };
  if (!begin) least_ = end_near(least_, true);
  if (!end) most_ = end_near(most_, false);
  if (most_ <= least_) {  // a single value goes in the middle
    if (!begin) least_ /= base;
    most_ *= base;
  }
  const double decades = power_of(most_ / least_);
  const bool with_fractions = base == 10 && decades < 3;
  const double every = std::max(1.0, std::ceil(decades / labels / 1.5));
  for (double p = std::floor(power_of(least_) + 1e-9);
       p <= power_of(most_) + 1e-9 && ticks_.size() < kMostTicks; p += every)
    for (double factor : {1.0, 2.0, 5.0}) {
      if (factor != 1 && !with_fractions) break;
      const double value = factor * std::pow(base, p);
      if (value >= least_ * (1 - 1e-9) && value <= most_ * (1 + 1e-9)) ticks_.push_back({value, ""});
    }
}

void Scale::label_ticks(Unit unit) {
  for (Tick& tick : ticks_) {
    if (tick.value == 0)
      tick.label = digits(0);
    else if (growth_ == Growth::log2)
      tick.label = power_of_two_text(tick.value, unit);
    else
      tick.label = text_like(tick.value, growth_ == Growth::linear ? most_ : tick.value, unit);
  }
}

double Scale::at(double value) const {
  const double share = growth_ == Growth::linear ? (value - least_) / (most_ - least_)
                                                 : std::log(value / least_) / std::log(most_ / least_);
  return from_ + (to_ - from_) * std::clamp(share, 0.0, 1.0);
}

}  // namespace tessera::report
