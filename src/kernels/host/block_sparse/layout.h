// Scratch layout of a slice, and when it reads X in place.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/bf16_product.h"
#include "kernels/common/splits.h"
#include "kernels/host/block_sparse/block_sparse.h"

namespace tessera::kernels {

/// Values of one group of columns in a strip, for every block size.
inline constexpr size_t kGroupValues = 16;

/// Rows of Y collected before they are finished, if Y needs more than plain stores. A whole cache line of a
/// column-major Y.
inline constexpr uint32_t kChunkRows = 32;

/// Maximum prefetch distance for values, in blocks: lists of slots continue past the last block by this
/// number.
inline constexpr uint32_t kMostSlotsAhead = 64;

/// Maximum number of columns that the few-column kernel keeps in registers.
inline constexpr uint32_t kFewColumns = 8;

/// Floats that packing X for the few-column kernel may write past a panel, to be overwritten.
inline constexpr uint32_t kPackSpill = kFewColumns * 4;

/// Rows of a packed panel of X: k and the overhang of the last block.
inline uint32_t padded_k(const BlockWeight& w) { return round_up(w.cols, w.block_size); }

/// Mean number of times a slice reads a row of X, in micro-tiles of this many rows.
inline double reads_of_x(const BlockSlice& slice, uint32_t micro_rows) {
  const BlockWeight& w = slice.weight;
  return blocks_of(slice) * w.block_size * w.block_size / (double{1} * micro_rows * w.cols);
}

/// Whether rows of X that do not begin at a cache line are worth reading rotated, as aligned vectors with the
/// first in two parts (common/panels-inl.h, Rotation): with several vectors, and if masks are cheap.
inline bool can_rotate(size_t lanes, uint32_t micro_rows, uint32_t cols) {
  return lanes == kMaxLanes && micro_rows == 8 && cols >= 4 * lanes;
}

/// Number of reads of X above which an aligned copy pays, if its rows begin elsewhere.
inline double reads_worth_a_copy(bool rotated, uint32_t block_size) {
  return rotated && block_size >= 16 ? 20 : 12;
}

/// How the wide kernel splits columns of Y, in cache lines of a row, into panels.
inline TileSplit panels_of(const BlockSchedule& schedule, uint32_t cols) {
  return {round_up(cols, kMaxLanes) / kMaxLanes,
          std::max(round_up(schedule.panel_cols, kMaxLanes) / kMaxLanes, 1U)};
}

/// Scratch of the wide kernel; offsets in floats.
struct WideScratch {
  size_t panel = 0;  ///< packed X: a [k][columns] matrix per micro-tile
  size_t strip;      ///< values of one strip of a block row, widened to FP32
  size_t columns;    ///< block columns of one block row (uint32_t), or where their rows of X begin (int32_t)
  size_t masks;      ///< where the masks of their taps begin (uint32_t)
  size_t slots;      ///< slots of its blocks and of kMostSlotsAhead more (uint32_t)
  size_t numbers;    ///< 0, 1, 2, …: slots of consecutive values, as many as in `slots`
  size_t list;       ///< number of elements of `numbers`
  size_t rows;       ///< raw results of a chunk: [kChunkRows][panel columns]
  size_t total;

  WideScratch(const BlockSchedule& schedule, uint32_t k, uint32_t block_size, uint32_t cols) {
    const TileSplit panels = panels_of(schedule, cols);
    const size_t width = size_t{std::min(panels.most, panels.vectors)} * kMaxLanes;
    const size_t depth = round_up(k, block_size);
    const size_t strip_rows = sparse::order_of(block_size).strip_rows;
    strip = panel + depth * width;
    columns = strip + depth * strip_rows;
    const size_t blocks = round_up(static_cast<uint32_t>(depth / block_size), kMaxLanes);
    list = blocks + kMostSlotsAhead;
    masks = columns + blocks + kMaxLanes;
    slots = masks + blocks;
    numbers = slots + list;
    rows = numbers + list;
    total = rows + kChunkRows * width;
  }
};

/// Scratch of the few-column kernel; offsets in floats.
struct FewColumnScratch {
  size_t panel = 0;  ///< packed X: [k / group][columns][group] for every kFewColumns columns;
                     ///< transposed, [k / strip rows][columns][strip rows][group]
  size_t results;    ///< results of up to kChunkRows rows, by columns
  size_t by_rows;    ///< these results by rows
  size_t total;

  FewColumnScratch(uint32_t k, uint32_t block_size, uint32_t cols, bool transposed) {
    const uint32_t repeats = transposed ? sparse::order_of(block_size).group : 1;
    results = panel + round_up(round_up(k, block_size) * cols * repeats + kPackSpill, kMaxLanes);
    by_rows = results + kChunkRows * kFewColumns;
    total = by_rows + kChunkRows * kFewColumns;
  }
};

/// Scratch of the BF16 kernel; offsets in floats.
struct Bf16BlockScratch {
  uint32_t panel_cols;  ///< columns of X that stay in the L2 cache, whole tiles
  size_t tile_values;   ///< values of X of a tile: [pair of rows][column][2]
  size_t blocks;        ///< a thread's block row: [step][kBf16BlockRows][kBf16Step]
  size_t columns;       ///< block columns of a thread's block row (uint32_t)
  size_t sums;          ///< a thread's sums of two parts of Y: [kBf16BlockRows][kBf16BlockTiles][column]
  size_t total;

  Bf16BlockScratch(uint32_t k, uint32_t block_size, uint32_t cols) {
    constexpr size_t kPanelValues = size_t{1} << 19;
    constexpr uint32_t kColumns = kBf16BlockTiles * kBf16Columns;
    const uint32_t terms = std::max(round_up(k, kBf16Step), kBf16Step), row_blocks = terms / block_size;
    panel_cols = std::min(round_up(std::max(cols, 1U), kBf16Columns),
                          std::max(static_cast<uint32_t>(kPanelValues / terms) / kColumns, 1U) * kColumns);
    tile_values = size_t{terms} * kBf16Columns;
    blocks = tile_values * (panel_cols / kBf16Columns) / 2;
    columns = blocks + size_t{terms / kBf16Step} * kBf16StepValues / 2;
    sums = columns + round_up(row_blocks, kMaxLanes);
    total = sums + size_t{2} * kBf16BlockRows * kColumns;
  }
};

}  // namespace tessera::kernels
