// Sparse matrices: a pattern of blocks, and the values in it.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

/// Positions of the non-zero b × b blocks of an m × k matrix, by block rows (BSR). b = 1 is CSR. If b does
/// not divide m or k, the last block row or column overhangs the matrix; the overhang is padding and is
/// ignored.
struct Pattern {
  uint32_t rows = 0;                         ///< m, in elements
  uint32_t cols = 0;                         ///< k, in elements
  uint32_t block_size = 1;                   ///< b
  std::vector<uint64_t> crow_indices = {0};  ///< first block of each block row; block_rows() + 1 entries
  std::vector<uint32_t> col_indices;         ///< block column of each block, ascending in a block row

  uint32_t block_rows() const { return (rows + block_size - 1) / block_size; }
  uint32_t block_cols() const { return (cols + block_size - 1) / block_size; }
  uint64_t blocks() const { return col_indices.size(); }

  bool operator==(const Pattern&) const = default;
};

/// The groups of a convolution. Its weight is [outputs, taps · channels per group], ordered by tap, then by
/// channel.
struct ConvolutionGroups {
  uint32_t groups = 1;
  uint32_t taps = 1;
};

/// A block by its block row and block column.
struct BlockPosition {
  uint32_t row = 0;
  uint32_t col = 0;

  bool operator==(const BlockPosition&) const = default;
};

/// A sparse matrix. values holds the blocks in the pattern's order, each row-major and b × b; the overhang of
/// edge blocks is ignored.
struct SparseMatrix {
  Pattern pattern;
  std::vector<float> values;
};

}  // namespace tessera
