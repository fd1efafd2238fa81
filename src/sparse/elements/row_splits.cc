#include "sparse/elements/row_splits.h"

#include <algorithm>
#include <atomic>

#include "sparse/pattern.h"

namespace tessera::sparse {

RowSplits::RowSplits(const Pattern& pattern, uint32_t k_block, const base::ParallelFor& parallel)
    : rows_(pattern.rows) {
  constexpr uint32_t kRowsAtATime = 64;
  std::atomic<bool> sound = pattern.crow_indices.size() == uint64_t{rows_} + 1 &&
                            pattern.crow_indices.front() == 0 &&
                            pattern.crow_indices.back() == pattern.blocks();
  if (sound) {
    begin_.resize(((pattern.cols + uint64_t{k_block} - 1) / k_block + 1) * rows_);
    parallel((rows_ + kRowsAtATime - 1) / kRowsAtATime, [&](uint32_t i) {
      const uint32_t first = i * kRowsAtATime;
      if (!split(pattern, k_block, first, std::min(rows_, first + kRowsAtATime))) sound = false;
    });
  }
  if (!sound) validate(pattern);  // says what is wrong
}

/// Whether the rows are those of a pattern.
bool RowSplits::split(const Pattern& pattern, uint32_t k_block, uint32_t first_row, uint32_t end_row) {
  const auto k_blocks = static_cast<uint32_t>((pattern.cols + uint64_t{k_block} - 1) / k_block);
  const double reciprocal = 1.0 / k_block;
  std::vector<uint32_t> end_of(k_blocks + size_t{1});
  for (uint32_t row = first_row; row < end_row; ++row) {
    const uint64_t begin = pattern.crow_indices[row];
    const uint64_t end = pattern.crow_indices[row + 1];
    if (begin > end || end > pattern.blocks()) return false;
    if (begin < end && pattern.col_indices[end - 1] >= pattern.cols) return false;
    std::fill(end_of.begin(), end_of.end(), static_cast<uint32_t>(begin));
    int64_t last_column = -1;
    bool ascend = true;
    for (uint64_t i = begin; i < end; ++i) {
      const uint32_t column = pattern.col_indices[i];
      ascend &= column > last_column;
      last_column = column;
      // Half a column away from where rounding could matter.
      const double of = (std::min(column, pattern.cols) + 0.5) * reciprocal;
      end_of[std::min(static_cast<uint32_t>(of), k_blocks - 1) + 1] = static_cast<uint32_t>(i) + 1;
    }
    if (!ascend) return false;
    auto at = static_cast<uint32_t>(begin);
    for (uint32_t k = 0; k <= k_blocks; ++k) {
      at = std::max(at, end_of[k]);
      begin_[uint64_t{k} * rows_ + row] = at;
    }
  }
  return true;
}

}  // namespace tessera::sparse
