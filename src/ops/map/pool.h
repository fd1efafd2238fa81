// Pooling over windows of images: the largest element of each window, its gradient, and weighted sums.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/map/map.h"

namespace tessera::ops {

/// The elements of a dimension under a window: `count` elements from `first` on, Windows::step apart.
struct Taps {
  uint32_t first = 0;
  uint32_t count = 0;
  std::vector<double> weights = {};  ///< for a weighted sum

  bool operator==(const Taps&) const = default;
};

/// The windows of the outputs along a dimension.
struct Windows {
  uint32_t size = 0;  ///< size of the dimension
  uint32_t step = 1;
  std::vector<Taps> of = {};

  uint32_t outputs() const { return static_cast<uint32_t>(of.size()); }
  /// The largest number of elements of a window.
  uint32_t taps() const;
  bool operator==(const Windows&) const = default;
};

enum class Pooling : uint8_t {
  maximum,           ///< x to y
  maximum_gradient,  ///< dy and x to dx: to the first of equal elements
  weighted_sum,      ///< x to y, over neighbours
};

/// Images [samples, height, width, channels] as matrices of pixels × channels, or of channels × pixels. On a
/// host.
struct PoolProblem {
  Pooling kind = Pooling::maximum;
  Type type = Type::f32;
  uint32_t samples = 0;
  uint32_t channels = 0;
  Windows down, across;
  bool transposed = false;
};

/// Operands "x", "y", or "dy", "x", "dx".
MapOperation operation_of(const PoolProblem& problem);

}  // namespace tessera::ops
