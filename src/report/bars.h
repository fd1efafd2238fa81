// Common parts of charts with stacked bars.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "report/axis.h"

namespace tessera::report {

/// A part that can be stacked: 0 if it is missing or not a number.
inline double part_of(const std::vector<double>& parts, size_t index) {
  return index < parts.size() && std::isfinite(parts[index]) ? std::max(parts[index], 0.0) : 0.0;
}

inline double sum_of(const std::vector<double>& parts) {
  double sum = 0;
  for (size_t i = 0; i < parts.size(); ++i) sum += part_of(parts, i);
  return sum;
}

/// The categories that occur in any of the stacks.
template <class Stacks>
std::vector<bool> used_categories(const Stacks& stacks, size_t categories) {
  std::vector<bool> used(categories);
  for (const auto& stack : stacks)
    for (size_t c = 0; c < categories; ++c)
      if (part_of(stack.parts, c) > 0) used[c] = true;
  return used;
}

/// An axis that begins at 0, for stacks.
inline Axis from_zero(Axis axis) {
  axis.growth = Growth::linear;
  axis.least = 0;
  return axis;
}

}  // namespace tessera::report
