// The positions at which the rows of a pattern cross k-block boundaries.
#pragma once

#include <tessera/sparse.h>

#include <cstdint>
#include <vector>

#include "base/parallel.h"

namespace tessera::sparse {

/// Positions of the first element of each row in each k-block, and past the last.
class RowSplits {
 public:
  RowSplits() = default;

  /// Finds the positions for a pattern of block size 1 with fewer than 2^32 elements. Throws UsageError if it
  /// is malformed.
  RowSplits(const Pattern& pattern, uint32_t k_block, const base::ParallelFor& parallel);

  /// The first element of each row in a k-block; `k_block` may be the number of k-blocks.
  const uint32_t* begin(uint32_t k_block) const { return begin_.data() + uint64_t{k_block} * rows_; }

 private:
  bool split(const Pattern& pattern, uint32_t k_block, uint32_t first_row, uint32_t end_row);

  uint32_t rows_ = 0;
  std::vector<uint32_t> begin_;
};

}  // namespace tessera::sparse
