// Arrays with permuted or repeated dimensions.
#pragma once

#include <vector>

#include "ops/map/map.h"

namespace tessera::ops {

/// An array of at most five dimensions whose element (i0, i1, …) is element Σ i_d · steps_d of a source,
/// counted row by row; of any type. As matrices, arrays have some last dimensions as columns and the others
/// as rows. On a host.
struct RearrangeProblem {
  Type type = Type::f32;
  uint32_t rows = 0;  ///< rows of the source
  uint32_t cols = 0;
  std::vector<uint32_t> sizes;
  std::vector<uint64_t> steps;  ///< by dimension; each is a multiple of the source's columns, or less than
                                ///< them
  uint32_t column_sizes = 1;    ///< number of last dimensions that are columns of the result
};

/// Operands "in", "out".
MapOperation operation_of(const RearrangeProblem& problem);

}  // namespace tessera::ops
