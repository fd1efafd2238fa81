#include "sparse/elements/element_splits.h"

#include <algorithm>

namespace tessera::sparse {
namespace {

/// Rows of a chunk: enough for like tasks to find each other, few enough for their sums to wait in
/// the L2 cache. An eighth more where that keeps the last rows from making a chunk of their own.
constexpr uint32_t kChunkRows = 2048;
constexpr uint32_t kMostRows = kChunkRows + kChunkRows / 8;

/// Shorter chunks are mostly filler, and are not cut for the sake of more parts.
constexpr uint32_t kLeastRows = 128;

uint32_t choose_k_block(uint32_t rows, uint32_t cols, uint64_t non_zeros) {
  const double cells = static_cast<double>(rows) * cols;
  const double density = cells > 0 ? static_cast<double>(non_zeros) / cells : 0;
  // With the row of zeros behind them, 2^i rows of X.
  if (density >= 3.0 / 8) return 63;
  if (density >= 3.0 / 64) return 127;
  if (density >= 3.0 / 256) return 255;
  return 1023;
}

/// Cuts the rows into chunks of about the rows asked for, `parts` of them or more if the rows are
/// enough, with like amounts of work, which ascends with the row.
template <class Work>
std::vector<uint32_t> split_rows(uint32_t rows, const ElementPacking& packing, const Work& work_before) {
  const uint32_t asked_rows = std::min(packing.chunk_rows, kMaxChunkRows);
  const uint64_t chunk_rows = asked_rows > 0 ? asked_rows : kChunkRows;
  const uint32_t most_rows = asked_rows > 0 ? asked_rows : kMostRows;
  const uint64_t chunks = std::max<uint64_t>((rows + chunk_rows - 1) / chunk_rows,
                                             std::clamp(rows / kLeastRows, 1U, packing.parts));
  std::vector<uint32_t> begin = {0};
  for (uint32_t row = 1; row < rows; ++row) {
    const uint64_t target = work_before(rows) * begin.size() / chunks;
    const bool nearest = work_before(row) + work_before(row + 1) > 2 * target;
    if (nearest || row - begin.back() == most_rows) begin.push_back(row);
  }
  if (rows > 0) begin.push_back(rows);
  return begin;
}

ElementIndex empty_index(uint32_t rows, uint32_t cols, uint64_t non_zeros, const ElementPacking& packing,
                         std::vector<uint32_t> chunk_begin) {
  ElementIndex index;
  index.rows = rows;
  index.cols = cols;
  index.k_block =
      std::min(packing.k_block > 0 ? packing.k_block : choose_k_block(rows, cols, non_zeros), kMaxKBlock);
  index.chunk_begin = std::move(chunk_begin);
  index.blocks.assign(uint64_t{index.chunks()} * index.k_blocks() + 1, ElementBlock{});
  return index;
}

}  // namespace

ElementIndex split_for(const Pattern& pattern, const ElementPacking& packing) {
  // Rows count too, so that empty ones do not pile up.
  return empty_index(
      pattern.rows, pattern.cols, pattern.blocks(), packing,
      split_rows(pattern.rows, packing, [&](uint32_t row) { return pattern.row_begin[row] + row; }));
}

ElementIndex split_for_shape(uint32_t rows, uint32_t cols, uint64_t non_zeros,
                             const ElementPacking& packing) {
  return empty_index(rows, cols, non_zeros, packing,
                     split_rows(rows, packing, [](uint32_t row) { return uint64_t{row}; }));
}

}  // namespace tessera::sparse
