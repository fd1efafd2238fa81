// Scratch layout of a slice, and how it splits columns into panels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/host/element_sparse/element_sparse.h"

namespace tessera::kernels {

/// Maximum number of columns of a panel that is processed by tasks: eight AVX-512 vectors; and of a panel
/// that is processed row by row: sixteen.
inline constexpr uint32_t kMaxTaskCols = 128;
inline constexpr uint32_t kMaxPanelCols = 256;

/// The packed rows of X for a k-block, followed by a row of zeros, and the sums of a chunk's rows of Y, with
/// one extra row that is never read.
struct ElementOperands {
  const float* x;
  float* y;
};

/// Whether a slice has several groups of chunks, so that its panels of X are reused and kept whole, not
/// k-block by k-block.
inline bool keeps_panel(const ElementSchedule& schedule, uint32_t slice_chunks) {
  return slice_chunks > schedule.group_chunks;
}

/// Whether rows are finished by their only k-block, so that sums need not wait in scratch. They reach Y in no
/// order, which does not suit non-temporal stores. Panels of one column do not make use of it.
inline bool finishes_rows(const ElementSlice& slice) {
  return slice.weight.k_blocks() == 1 && slice.y.col_stride == 1 && !slice.schedule.stream_y;
}

/// Whether panels wider than kMaxTaskCols are processed row by row, reading X in place: if vectors have
/// sixteen elements, and all vectors are whole.
inline bool runs_by_rows(const ElementSlice& slice, size_t lanes) {
  return slice.schedule.panel_cols > kMaxTaskCols && lanes == 16 &&
         (slice.col_end - slice.col_begin) % lanes == 0 && !slice.seen && slice.x.col_stride == 1 &&
         finishes_rows(slice);
}

/// Whether row-by-row processing reads panels of `cols` columns of X in place, if they begin at cache lines:
/// the panel is at least half of each row of X, so that it lies nearly as densely in the caches as a packed
/// one.
inline bool reads_in_place(const MatrixView<const float>& x, uint32_t cols) {
  return x.col_stride == 1 && x.row_stride % 16 == 0 && x.row_stride <= 2 * int64_t{cols};
}

/// Scratch of a slice; offsets in floats; each part begins at a cache line.
struct ElementScratch {
  size_t x = 0;    ///< [k-blocks kept][k_block + 1][panel columns]
  size_t y;        ///< [rows of a group, plus one per chunk][panel columns]
  size_t widened;  ///< the values of one row group as FP32, if stored in fewer bits
  size_t total;

  ElementScratch(const ElementSchedule& schedule, const ElementWeight& w, uint32_t cols) {
    constexpr size_t kLine = 16;
    const auto whole_lines = [&](uint32_t most) {
      const uint32_t width = std::min({uint32_t{schedule.panel_cols}, most, std::max(cols, 1U)});
      return (width + kLine - 1) / kLine * kLine;
    };
    const size_t width = whole_lines(kMaxPanelCols);
    const size_t kept = keeps_panel(schedule, w.chunks) ? w.k_blocks() : 1;
    uint32_t chunk_rows = 0;
    for (uint32_t c = 0; c < w.chunks; ++c)
      chunk_rows = std::max(chunk_rows, w.chunk_begin[c + 1] - w.chunk_begin[c]);
    y = kept * (w.k_block + size_t{1}) * whole_lines(kMaxTaskCols);
    widened = y + std::min<size_t>(schedule.group_chunks, w.chunks) * (chunk_rows + size_t{1}) * width;
    // A row of a row group has at most one element per column.
    const size_t row_group = w.type == Type::f32 ? 0 : size_t{2} * sparse::kRowGroupLanes * w.k_block;
    total = widened + row_group;
  }
};

}  // namespace tessera::kernels
