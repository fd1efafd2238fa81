#include "sparse/elements/element_splits.h"

#include <algorithm>

namespace tessera::sparse {
namespace {

/// Rows per chunk. Smaller chunks have more filler in row groups, especially with short rows; larger ones
/// leave less parallelism for threads.
constexpr uint32_t kFewRows = 512;
constexpr uint32_t kManyRows = 1024;
constexpr uint64_t kManyNonZeros = uint64_t{512} << 10;

/// A matrix with fewer rows has two chunks, if each has enough rows, and enough non-zeros to amortise sharing
/// the work; one with fewer non-zeros has chunks of up to this many rows.
constexpr uint32_t kFewestRows = 128;
constexpr uint64_t kFewestNonZeros = uint64_t{48} << 10;
constexpr uint32_t kMostRows = 2048;

/// Fewest non-zeros of a chunk with whole rows: then threads share chunks, because two threads that write
/// parts of the same rows of Y fetch each other's lines.
constexpr uint64_t kFewestNonZerosOfWholeRows = 2048;

/// Number of chunks of at least `few_rows` rows.
uint32_t choose_chunks(uint32_t rows, uint64_t non_zeros, uint32_t few_rows, bool whole_rows) {
  const uint64_t fewest = whole_rows ? kFewestNonZerosOfWholeRows : kFewestNonZeros;
  const uint64_t likely_rows =
      std::clamp<uint64_t>(kManyNonZeros * rows / std::max<uint64_t>(non_zeros, 1), few_rows, kManyRows);
  const uint64_t least = (uint64_t{rows} + kMostRows - 1) / kMostRows;
  const uint64_t most = std::max<uint64_t>(rows / likely_rows, std::min(2U, rows / kFewestRows));
  return static_cast<uint32_t>(std::max<uint64_t>({1, least, std::min(non_zeros / fewest, most)}));
}

/// Columns of W whose rows of X may be in the L2 cache all at once, as panels.
constexpr uint32_t kWidestPanel = 1023;
/// Columns of W whose rows of X nearly fit the L1 cache, as narrower panels.
constexpr uint32_t kNearPanel = 383;

uint32_t choose_k_block(uint32_t rows, uint32_t cols, uint64_t non_zeros) {
  const double cells = static_cast<double>(rows) * cols;
  const double density = cells > 0 ? static_cast<double>(non_zeros) / cells : 0;
  // With the row of zeros behind them, 2^i rows of X.
  if (density >= 3.0 / 8) return 63;
  if (density >= 3.0 / 64) return 127;
  if (density >= 3.0 / 256) return 255;
  return kWidestPanel;
}

/// Splits the rows into this many chunks with similar amounts of work, which ascends with the row; more if
/// they exceed `most_rows`.
template <class Work>
std::vector<uint32_t> split_rows(uint32_t rows, uint32_t chunks, uint32_t most_rows,
                                 const Work& work_before) {
  std::vector<uint32_t> begin = {0};
  for (uint32_t row = 1; row < rows; ++row) {
    const uint64_t target = work_before(rows) * begin.size() / chunks;
    const bool nearest = begin.size() < chunks && work_before(row) + work_before(row + 1) > 2 * target;
    if (nearest || row - begin.back() == most_rows) begin.push_back(row);
  }
  if (rows > 0) begin.push_back(rows);
  return begin;
}

/// The same, with the requested or a suitable number.
template <class Work>
std::vector<uint32_t> split_rows(uint32_t rows, uint64_t non_zeros, uint32_t few_rows, bool whole_rows,
                                 const ElementPacking& packing, const Work& work_before) {
  if (packing.chunk_rows > 0) {
    const uint32_t most = std::min(packing.chunk_rows, kMaxChunkRows);
    return split_rows(rows, (rows + most - 1) / most, most, work_before);
  }
  return split_rows(rows, choose_chunks(rows, non_zeros, few_rows, whole_rows), kMostRows + kMostRows / 8,
                    work_before);
}

ElementIndex empty_index(uint32_t rows, uint32_t cols, uint32_t k_block, std::vector<uint32_t> chunk_begin) {
  ElementIndex index;
  index.rows = rows;
  index.cols = cols;
  index.k_block = std::min(k_block, kMaxKBlock);
  index.chunk_begin = std::move(chunk_begin);
  index.blocks.assign(uint64_t{index.chunks()} * index.k_blocks() + 1, ElementBlock{});
  return index;
}

template <class Work>
ElementIndex split(uint32_t rows, uint32_t cols, uint64_t non_zeros, uint32_t few_rows,
                   const ElementPacking& packing, const Work& work_before) {
  const bool whole_rows = packing.whole_rows && has_whole_rows(rows, cols, non_zeros);
  const uint32_t chosen = whole_rows ? cols : choose_k_block(rows, cols, non_zeros);
  return empty_index(rows, cols, packing.k_block > 0 ? packing.k_block : chosen,
                     split_rows(rows, non_zeros, few_rows, whole_rows, packing, work_before));
}

}  // namespace

bool has_whole_rows(uint32_t rows, uint32_t cols, uint64_t non_zeros) {
  const uint64_t cells = uint64_t{rows} * cols;
  if (cols <= kNearPanel && 8 * non_zeros < cells) return true;
  return cols <= kWidestPanel ? 40 * non_zeros < 3 * cells : cols <= kMaxKBlock && 32 * non_zeros < cells;
}

ElementIndex split_for(const Pattern& pattern, const ElementPacking& packing) {
  // Rows count too, so that empty ones do not pile up.
  return split(pattern.rows, pattern.cols, pattern.blocks(), kFewRows, packing,
               [&](uint32_t row) { return pattern.crow_indices[row] + row; });
}

ElementIndex split_for_shape(uint32_t rows, uint32_t cols, uint64_t non_zeros,
                             const ElementPacking& packing) {
  return split(rows, cols, non_zeros, kManyRows, packing, [](uint32_t row) { return uint64_t{row}; });
}

}  // namespace tessera::sparse
