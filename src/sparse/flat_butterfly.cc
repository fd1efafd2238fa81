#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/io.h>

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "sparse/pattern.h"

namespace tessera {
namespace {

constexpr uint32_t kMostCells = 1 << 20;

/// Columns of the active blocks of each block row.
using Rows = std::vector<std::vector<uint32_t>>;

/// Blocks [first, last) that a cell of a grid stretched over `size` elements overlaps.
struct BlockRange {
  uint32_t first, last;
};
BlockRange blocks_of_cell(uint64_t cell, uint32_t cells, uint32_t size, uint32_t block_size) {
  const uint64_t block = uint64_t{cells} * block_size;
  return {static_cast<uint32_t>(cell * size / block),
          static_cast<uint32_t>(((cell + 1) * size + block - 1) / block)};
}

void check(uint32_t butterfly_size, uint32_t factors) {
  if (!std::has_single_bit(butterfly_size) || butterfly_size > kMostCells)
    throw UsageError(fmt::format("a butterfly size of {}; it must be a power of two, at most {}",
                                 butterfly_size, kMostCells));
  const auto most = static_cast<uint32_t>(std::countr_zero(butterfly_size));
  if (factors > most)
    throw UsageError(
        fmt::format("{} butterfly factors; {} cells have 1 to {}", factors, butterfly_size, most));
}

Rows stretched(const Pattern& sizes, uint32_t cells, uint32_t factors) {
  Rows rows(sizes.block_rows());
  const auto touch = [&](uint32_t row, uint32_t col) {
    const BlockRange of_rows = blocks_of_cell(row, cells, sizes.rows, sizes.block_size);
    const BlockRange of_cols = blocks_of_cell(col, cells, sizes.cols, sizes.block_size);
    for (uint32_t r = of_rows.first; r < of_rows.last; ++r)
      for (uint32_t c = of_cols.first; c < of_cols.last; ++c) rows[r].push_back(c);
  };
  for (uint32_t cell = 0; cell < cells; ++cell) {
    touch(cell, cell);
    for (uint32_t k = 0; k < factors; ++k) touch(cell, cell ^ (1U << k));
  }
  for (std::vector<uint32_t>& row : rows) {
    std::ranges::sort(row);
    row.erase(std::ranges::unique(row).begin(), row.end());
  }
  return rows;
}

/// Distributes the rows or columns of the longer side over repetitions of a square.
Rows repeated(Rows rows, uint32_t cols) {
  const auto count = static_cast<uint32_t>(rows.size());
  const uint32_t longer = std::max(count, cols), shorter = std::min(count, cols);
  if (shorter == 0 || longer % shorter != 0)
    throw UsageError(fmt::format("{} × {} blocks repeat no square pattern; stretch it", count, cols));
  const uint32_t repetitions = longer / shorter;
  if (count > cols) {
    Rows dealt(count);
    for (uint32_t r = 0; r < count; ++r)
      dealt[r % repetitions * shorter + r / repetitions] = std::move(rows[r]);
    return dealt;
  }
  for (std::vector<uint32_t>& row : rows) {
    for (uint32_t& c : row) c = c % repetitions * shorter + c / repetitions;
    std::ranges::sort(row);
  }
  return rows;
}

}  // namespace

Pattern flat_butterfly(uint32_t rows, uint32_t cols, uint32_t block_size, uint32_t butterfly_size,
                       const FlatButterflyOptions& options) {
  sparse::validate_sizes(rows, cols, block_size);
  check(butterfly_size, options.num_factors);
  Pattern pattern{rows, cols, block_size, {0}, {}};
  const auto all = static_cast<uint32_t>(std::countr_zero(butterfly_size));
  Rows active = stretched(pattern, butterfly_size, options.num_factors == 0 ? all : options.num_factors);
  if (!options.stretch) active = repeated(std::move(active), pattern.block_cols());
  for (const std::vector<uint32_t>& row : active) {
    pattern.col_indices.insert(pattern.col_indices.end(), row.begin(), row.end());
    pattern.crow_indices.push_back(pattern.col_indices.size());
  }
  return pattern;
}

}  // namespace tessera
