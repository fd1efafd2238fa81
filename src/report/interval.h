// Means of repeated measurements with their confidence intervals.
#pragma once

#include <vector>

namespace tessera::report {

inline constexpr double kConfidence = 0.95;

/// A mean, and half the width of its 95 % confidence interval (Student's t), infinite for a single value.
struct Interval {
  double mean = 0;
  double margin = 0;
};

/// Of at least one value; they are assumed independent and normally distributed.
Interval interval_of(const std::vector<double>& values);

}  // namespace tessera::report
