#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/io.h>

#include <algorithm>
#include <bit>

#include "sparse/pattern.h"

namespace tessera {
namespace {

/// Blocks [first, last) that a cell of a g × g grid stretched over `size` elements touches.
struct BlockRange {
  uint32_t first, last;
};
BlockRange blocks_of_cell(uint32_t cell, uint32_t cells, uint32_t size, uint32_t block_size) {
  const uint64_t begin = uint64_t{cell} * size / cells, end = (uint64_t{cell} + 1) * size / cells;
  return {static_cast<uint32_t>(begin / block_size),
          static_cast<uint32_t>((end + block_size - 1) / block_size)};
}

}  // namespace

Pattern flat_butterfly(uint32_t rows, uint32_t cols, uint32_t block_size, uint32_t butterfly_size) {
  sparse::validate_sizes(rows, cols, block_size);
  if (!std::has_single_bit(butterfly_size) || butterfly_size > std::min(rows, cols))
    throw UsageError(fmt::format("a butterfly size of {}; it must be a power of two, at most {} for {} × {}",
                                 butterfly_size, std::min(rows, cols), rows, cols));
  Pattern pattern{rows, cols, block_size, {}, {}};
  std::vector<std::vector<uint32_t>> columns(pattern.block_rows());
  const auto touch = [&](uint32_t row, uint32_t col) {
    const BlockRange of_rows = blocks_of_cell(row, butterfly_size, rows, block_size);
    const BlockRange of_cols = blocks_of_cell(col, butterfly_size, cols, block_size);
    for (uint32_t r = of_rows.first; r < of_rows.last; ++r)
      for (uint32_t c = of_cols.first; c < of_cols.last; ++c) columns[r].push_back(c);
  };
  for (uint32_t cell = 0; cell < butterfly_size; ++cell) {
    touch(cell, cell);
    for (uint32_t stride = 1; stride < butterfly_size; stride *= 2) touch(cell, cell ^ stride);
  }
  pattern.row_begin = {0};
  for (std::vector<uint32_t>& row : columns) {
    std::ranges::sort(row);
    row.erase(std::ranges::unique(row).begin(), row.end());
    pattern.columns.insert(pattern.columns.end(), row.begin(), row.end());
    pattern.row_begin.push_back(pattern.columns.size());
  }
  return pattern;
}

}  // namespace tessera
