// Windows of images: the largest element of each, its gradient, and weighted sums.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/map/map.h"

namespace tessera::ops {

/// Elements of a dimension: so many from the first one, a step apart.
struct Taps {
  uint32_t first = 0;
  uint32_t count = 0;
  std::vector<double> weights = {};  ///< of a weighted sum

  bool operator==(const Taps&) const = default;
};

/// What the outputs along a dimension see of it.
struct Windows {
  uint32_t size = 0;  ///< of the dimension
  uint32_t step = 1;
  std::vector<Taps> of = {};

  uint32_t outputs() const { return static_cast<uint32_t>(of.size()); }
  /// The most elements of one.
  uint32_t taps() const;
  bool operator==(const Windows&) const = default;
};

enum class Pooling : uint8_t {
  maximum,           ///< x to y
  maximum_gradient,  ///< dy and x to dx: to the first of equal elements
  weighted_sum,      ///< x to y, of neighbours
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
