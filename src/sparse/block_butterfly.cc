#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/io.h>

#include <algorithm>
#include <bit>

#include "sparse/pattern.h"

namespace tessera {
namespace {

/// One factor: in each group of `cells` block rows, row i has the block columns i and i ⊕ stride of the
/// group; if all columns are one group, of that group.
Pattern factor(uint32_t rows, uint32_t cols, uint32_t block_size, uint32_t cells, uint32_t stride,
               bool one_group) {
  Pattern pattern{rows, cols, block_size, {0}, {}};
  const uint32_t block_cols = pattern.block_cols();
  for (uint32_t row = 0; row < pattern.block_rows(); ++row) {
    const uint32_t i = row % cells, first = one_group ? 0 : row - i;
    for (const uint32_t column : {first + (i & ~stride), first + (i | stride)})
      if (column < block_cols) pattern.col_indices.push_back(column);
    pattern.crow_indices.push_back(pattern.col_indices.size());
  }
  return pattern;
}

}  // namespace

std::vector<Pattern> block_butterfly(uint32_t rows, uint32_t cols, uint32_t block_size) {
  sparse::validate_sizes(rows, cols, block_size);
  if (rows == 0 || cols == 0)
    throw UsageError(fmt::format("a block butterfly of {} × {}; both must be at least 1", rows, cols));
  const uint32_t cells = std::max(2U, std::bit_ceil((cols - 1) / block_size + 1));
  const uint64_t size = uint64_t{cells} * block_size, hidden = (rows + size - 1) / size * size;
  if (hidden > sparse::kMaxDimension)
    throw UsageError(
        fmt::format("a block butterfly of {} × {} in blocks of {} has {} features between its "
                    "factors, more than {}: use smaller blocks",
                    rows, cols, block_size, hidden, sparse::kMaxDimension));
  std::vector<Pattern> factors;
  for (uint32_t stride = 1; stride < cells; stride *= 2) {
    const bool first = stride == 1, last = 2 * stride == cells;
    factors.push_back(factor(last ? rows : static_cast<uint32_t>(hidden),
                             first ? cols : static_cast<uint32_t>(hidden), block_size, cells, stride, first));
  }
  return factors;
}

}  // namespace tessera
