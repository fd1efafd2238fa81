// The median of measured times.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tessera::base {

/// The median; of an even number of values, the higher of the middle two. There must be a value.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace tessera::base
