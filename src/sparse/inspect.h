// Inspection of a matrix's zeros, and of the effect of block sizes.
#pragma once

#include <tessera/sparse.h>

#include <cstdint>
#include <variant>
#include <vector>

#include "sparse/bit_matrix.h"

namespace tessera::sparse {

/// A matrix covered with b × b blocks.
struct BlockCovering {
  uint32_t block_size = 1;
  uint64_t blocks = 0;
  double density = 0;  ///< fraction of the matrix that is stored, 0 to 1
  double fill_in = 1;  ///< stored elements per non-zero, at least 1; 1 if there are no non-zeros
};

struct Inspection {
  uint32_t rows = 0;
  uint32_t cols = 0;
  uint64_t non_zeros = 0;                ///< inside the matrix
  double density = 0;                    ///< non_zeros as a fraction of the matrix
  std::vector<BlockCovering> coverings;  ///< for b = 1, 4, 8, 16 and 32
  uint32_t zero_rows = 0;                ///< rows without a non-zero
  uint32_t zero_cols = 0;
  /// Whether each aligned group of four elements of a row has at most two non-zeros (2:4).
  bool is_2_4 = true;
};

/// The non-zeros of a matrix: as bits, or as a pattern of single elements if they are few.
using NonZeros = std::variant<BitMatrix, Pattern>;

/// The non-zeros of a matrix [rows, channels · taps] as [rows, taps · channels], as convolutions have
/// weights, so that blocks are of rows and channels.
NonZeros taps_first(const NonZeros& non_zeros, uint32_t channels);

/// Inspects non-zeros in one pass for all block sizes. A pattern must have block size 1.
Inspection inspect(const BitMatrix& bits);
Inspection inspect(const Pattern& pattern);
Inspection inspect(const NonZeros& non_zeros);

/// The pattern of the blocks with a non-zero.
Pattern cover(const NonZeros& non_zeros, uint32_t block_size);

}  // namespace tessera::sparse
