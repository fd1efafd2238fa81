// Axes of charts: range, ticks, and positions of values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::report {

enum class Growth : uint8_t { linear, log2, log10 };

/// How numbers are written; `share` writes 0.25 as 25 %.
enum class Unit : uint8_t { number, bytes, seconds, cycles, share };

struct Axis {
  std::string label{};
  Unit unit = Unit::number;
  Growth growth = Growth::linear;
  std::optional<double> least{};  ///< where the axis begins (default: by the data)
  std::optional<double> most{};   ///< where the axis ends (default: by the data)
};

/// A readable value: "1.25 ms", "624 kB", "12,345 cycles", "6.2 %", "1.3 M".
std::string value_text(double value, Unit unit = Unit::number);

/// 1234567 as "1,234,567".
std::string count_text(uint64_t count);

/// 1, 2 or 5 times a power of ten that is at least `step` and large enough to be distinguishable next to
/// values of the size of `beside`. 1 if both are 0.
double round_step(double step, double beside);

/// The range that the data covers.
struct Range {
  std::optional<double> least{};
  std::optional<double> most{};

  /// Widens the range by a value, if an axis of this growth can show it.
  void include(double value, Growth growth);
};

struct Tick {
  double value = 0;
  std::string label{};
};

/// An axis laid out from one pixel to another.
class Scale {
 public:
  /// An axis that ends at ticks around the data. Without data, it is 0 to 1, or one decade (one doubling).
  Scale(const Axis& axis, const Range& data, double from_pixel, double to_pixel);

  /// Whether a value can be drawn: finite, and above 0 on a logarithmic axis.
  bool shows(double value) const { return shows(value, growth_); }
  static bool shows(double value, Growth growth);

  /// Pixel of a value; values beyond the ends are clamped to them.
  double at(double value) const;

  double least() const { return least_; }
  double most() const { return most_; }
  const std::vector<Tick>& ticks() const { return ticks_; }

 private:
  /// Lays out the axis for up to this many labels.
  void lay_linear(const Range& data, const Axis& axis, double labels);
  void lay_log(const Range& data, const Axis& axis, double labels);
  void label_ticks(Unit unit);

  Growth growth_;
  double from_;
  double to_;
  double least_ = 0;
  double most_ = 1;
  std::vector<Tick> ticks_;
};

}  // namespace tessera::report
