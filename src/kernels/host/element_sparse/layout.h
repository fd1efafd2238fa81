// Scratch layout of a slice, and how it splits columns into panels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/planes.h"
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

/// Elements of a slice, with filler; expected, if the index is not known.
inline double elements_of(const ElementSlice& slice) {
  const ElementWeight& w = slice.weight;
  if (w.blocks == nullptr) return static_cast<double>(w.capacity);
  const uint64_t first = uint64_t{slice.chunk_begin} * w.k_blocks(),
                 last = uint64_t{slice.chunk_end} * w.k_blocks();
  return static_cast<double>(w.blocks[last].value - w.blocks[first].value);
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

/// Whether a slice copies the images that X is seen in, rather than rows of X, of which there is one for each
/// tap: unless these are read so often that the copy takes no time beside.
inline bool uses_planes(const ElementSlice& slice) {
  constexpr double kMostReads = 16;
  return slice.seen && slice.x.col_stride == 1 && slice.y.col_stride == 1 && Planes(slice.seen).fit() &&
         elements_of(slice) <= kMostReads * slice.weight.cols;
}

/// Places of a panel of planes, in whole vectors.
inline uint32_t plane_cols(const ElementSchedule& schedule) {
  return std::min(round_up(schedule.panel_cols, kMaxLanes), kMaxTaskCols);
}

/// Scratch of a slice; offsets in floats; each part begins at a cache line.
struct ElementScratch {
  size_t x = 0;    ///< [k-blocks kept][k_block + 1][panel columns], or a piece of planes
  size_t y;        ///< [rows of a group, plus one per chunk][panel columns]
  size_t widened;  ///< the values of one row group as FP32, if stored in fewer bits
  size_t begins;  ///< with planes: where the rows of X of each k-block begin in a piece, and zeros (uint32_t)
  size_t total;

  ElementScratch(const ElementSchedule& schedule, const ElementWeight& w, uint32_t cols, const Seen& seen) {
    constexpr size_t kLine = 16;
    const auto whole_lines = [&](uint32_t most) {
      const uint32_t width = std::min({uint32_t{schedule.panel_cols}, most, std::max(cols, 1U)});
      return (width + kLine - 1) / kLine * kLine;
    };
    const bool has_planes = seen && Planes(seen).fit();
    const size_t width = std::max<size_t>(whole_lines(kMaxPanelCols), has_planes ? plane_cols(schedule) : 0);
    const size_t kept = keeps_panel(schedule, w.chunks) ? w.k_blocks() : 1;
    uint32_t chunk_rows = 0;
    for (uint32_t c = 0; c < w.chunks; ++c)
      chunk_rows = std::max(chunk_rows, w.chunk_begin[c + 1] - w.chunk_begin[c]);
    y = kept * (w.k_block + size_t{1}) * whole_lines(kMaxTaskCols);
    if (has_planes) y = std::max(y, Planes(seen).floats());
    widened = y + std::min<size_t>(schedule.group_chunks, w.chunks) * (chunk_rows + size_t{1}) * width;
    // A row of a row group has at most one element per column.
    const size_t row_group = w.type == Type::f32 ? 0 : size_t{2} * sparse::kRowGroupLanes * w.k_block;
    begins = widened + row_group;
    total = begins + (has_planes ? w.k_blocks() * (w.k_block + size_t{1}) : 0);
  }
};

inline ElementScratch scratch_of(const ElementSlice& slice) {
  return {slice.schedule, slice.weight, slice.col_end - slice.col_begin, slice.seen};
}

}  // namespace tessera::kernels
