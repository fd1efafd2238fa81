// The effect of block sizes on a pattern.
#pragma once

#include <tessera/sparse.h>

#include <cstdint>
#include <vector>

namespace tessera::sparse {

/// A pattern covered with b × b blocks.
struct BlockCovering {
  uint32_t block_size = 1;
  uint64_t blocks = 0;
  double density = 0;  ///< fraction of the matrix that is stored, 0 to 1
  double fill_in = 1;  ///< stored elements per non-zero, at least 1; 1 if there are none
};

struct Inspection {
  uint32_t rows = 0;
  uint32_t cols = 0;
  uint64_t non_zeros = 0;                ///< stored elements of the pattern inside the matrix
  double density = 0;                    ///< non_zeros as a fraction of the matrix
  std::vector<BlockCovering> coverings;  ///< for b = 1, 4, 8, 16 and 32
};

/// Covers the pattern, whose block size must be 1, with blocks of each size.
Inspection inspect(const Pattern& pattern);

}  // namespace tessera::sparse
