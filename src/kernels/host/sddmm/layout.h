// Scratch layout of a slice.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/planes.h"
#include "kernels/common/splits.h"
#include "kernels/host/sddmm/sddmm.h"

namespace tessera::kernels {

/// Number of a block's rows of dY that are processed together with its rows of X: the most that two thirds of
/// an L1 cache hold.
inline uint32_t sddmm_strip_rows(uint32_t block_size, uint32_t cols) {
  constexpr uint32_t kStripFloats = 8192, kTileRows = 4;
  uint32_t rows = block_size;
  while (rows > kTileRows && rows * cols > kStripFloats) rows /= 2;
  return rows;
}

/// Columns of a pass at blocks.
inline uint32_t block_sddmm_panel(const BlockSddmmSchedule& schedule, bool sees) {
  return std::clamp(schedule.panel_cols, 1U, sees ? kMaxSddmmPanel : UINT32_MAX);
}

/// Scratch of a slice at blocks; offsets in floats; each part begins at a cache line.
struct BlockSddmmScratch {
  size_t next = 0;  ///< per block row, the first remaining block (uint32_t)
  size_t used;      ///< per block column, whether the slice has any block there, if X is copied (a byte)
  size_t x;         ///< rows of X of a group, if X is column-major or seen: [rows][width]
  size_t dy;        ///< rows of dY of the slice, if dY is column-major: [rows][width]
  uint32_t width;   ///< columns of a pass, in whole vectors
  size_t total;

  BlockSddmmScratch(const BlockSddmmSchedule& schedule, const BlockWeight& w, uint32_t block_rows, uint32_t n,
                    const SddmmLayouts& layouts)
      : width(round_up(std::min(block_sddmm_panel(schedule, layouts.sees), std::max(n, 1U)), kMaxLanes)) {
    const bool copies_x = layouts.x_by_columns || layouts.sees;
    used = round_up(block_rows, kMaxLanes);
    x = used +
        (copies_x ? round_up(w.cols / w.block_size + 1, kMaxLanes * sizeof(float)) / sizeof(float) : 0);
    const uint32_t group_rows = std::clamp(schedule.group_rows, 1U, std::max(w.cols, 1U));
    const size_t x_rows = std::min(round_up(group_rows, w.block_size), w.cols);
    const size_t dy_rows = std::min(block_rows * w.block_size, w.rows);
    dy = x + (copies_x ? x_rows * width : 0);
    total = dy + (layouts.dy_by_columns ? dy_rows * width : 0);
  }
};

/// Clears the elements of dW after the slice's last that also belong to the slice.
void clear_rest(const ElementSddmmSlice& slice);

/// How a slice at single elements splits its columns: panels whose widths differ by at most one vector.
inline TileSplit sddmm_panels(const ElementSddmmSchedule& schedule, uint32_t n, uint32_t lanes) {
  const uint32_t most = std::clamp<uint32_t>(schedule.panel_cols, lanes, kMaxSddmmPanel);
  return {(n + lanes - 1) / lanes, most / lanes};
}

/// The end of the band of chunks from `first` on that share a copied k-block of X.
inline uint32_t sddmm_band_end(const ElementWeight& w, uint32_t first, uint32_t end) {
  constexpr uint32_t kMostRows = 2304;
  uint32_t chunk = first + 1;
  while (chunk < end && w.chunk_begin[chunk + 1] - w.chunk_begin[first] <= kMostRows) ++chunk;
  return chunk;
}

/// Number of bands of the chunks [first, end).
inline uint32_t sddmm_bands(const ElementWeight& w, uint32_t first, uint32_t end) {
  uint32_t bands = 0;
  for (; first < end; ++bands) first = sddmm_band_end(w, first, end);
  return bands;
}

/// Number of rows of dY of the largest band, including a row of zeros per chunk.
inline uint32_t sddmm_band_rows(const ElementWeight& w) {
  uint32_t rows = 1;
  for (uint32_t first = 0; first < w.chunks; ++first) {
    const uint32_t end = sddmm_band_end(w, first, w.chunks);
    rows = std::max(rows, w.chunk_begin[end] - w.chunk_begin[first] + (end - first));
  }
  return rows;
}

/// Whether a slice at single elements copies the images that X is seen in, rather than rows of X, of which
/// there is one for each tap: if it has all columns of some images, in whole vectors.
inline bool uses_planes(const ElementSddmmSlice& slice) {
  const SddmmOperands& o = slice.operands;
  if (!o.seen || o.n == 0 || o.x.col_stride != 1 || o.dy.col_stride != 1) return false;
  const Planes planes(o.seen);
  return planes.fit() && planes.are_whole() && planes.has_piece_at(o.seen.first) &&
         planes.has_piece_at(o.seen.first + o.n);
}

/// Scratch of a slice at single elements; offsets in floats.
struct ElementSddmmScratch {
  size_t x = 0;  ///< a k-block's rows of X and a row of zeros: [k_block + 1][panel]; or a piece of planes
  size_t dy;     ///< a band's rows of dY, a row of zeros behind each chunk: [panels of a group][rows][panel],
                 ///< or [rows][places of a piece]
  size_t dy_step;  ///< from one panel of the group to the next, or from one row to the next
  size_t begins =
      0;  ///< with planes: where the rows of X of each k-block begin in a piece, and zeros (uint32_t)
  size_t total;

  /// `planes` may be null.
  ElementSddmmScratch(const ElementSddmmSchedule& schedule, const ElementWeight& w, uint32_t n,
                      const Planes* planes) {
    const uint32_t rows = sddmm_band_rows(w);
    if (planes != nullptr) {
      dy = planes->floats();
      dy_step = round_up(planes->most_places(), kMaxLanes) | kMaxLanes;
      begins = dy + rows * dy_step;
      total = begins + w.k_blocks() * (w.k_block + size_t{1});
      return;
    }
    const size_t width = std::min(round_up(std::max<uint32_t>(schedule.panel_cols, kMaxLanes), kMaxLanes),
                                  std::min(kMaxSddmmPanel, round_up(std::max(n, 1U), kMaxLanes)));
    dy = (w.k_block + size_t{1}) * width;
    dy_step = rows * width;
    total = dy + dy_step * std::max<size_t>(schedule.group_panels, 1);
  }
};

}  // namespace tessera::kernels
