// Dimensions of an array in another order, or repeated.
#pragma once

#include <vector>

#include "ops/map/map.h"

namespace tessera::ops {

/// An array of at most five dimensions whose element (i0, i1, …) is element Σ i_d · steps_d of another,
/// counted row by row; of any type. Arrays are matrices: the last dimension, and the others. Of the source
/// that is rows × cols. On a host.
struct RearrangeProblem {
  Type type = Type::f32;
  uint32_t rows = 0;
  uint32_t cols = 0;
  std::vector<uint32_t> sizes;
  std::vector<uint64_t> steps;  ///< each of whole rows, or of less than one
};

/// Operands "in", "out".
MapOperation operation_of(const RearrangeProblem& problem);

}  // namespace tessera::ops
