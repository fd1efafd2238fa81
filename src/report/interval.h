// Means of repeated measurements with their confidence intervals.
#pragma once

#include <string>
#include <vector>

namespace tessera::report {

inline constexpr double kConfidence = 0.95;

struct Moments {
  double mean = 0;
  double deviation = 0;  ///< standard deviation of the sample; NaN for a single value
};

/// Mean and deviation of at least one value.
Moments moments_of(const std::vector<double>& values);

/// A mean, and half the width of its 95 % confidence interval (Student's t), infinite for a single value.
struct Interval {
  double mean = 0;
  double margin = 0;
};

/// The interval of at least one value; values are assumed independent and normally distributed.
Interval interval_of(const std::vector<double>& values);

/// "44.1 ± 0.6", or without a margin if it is infinite.
std::string to_string(const Interval& interval, int decimals = 1);

}  // namespace tessera::report
