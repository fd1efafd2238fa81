// Copying panels of X where X has the elements under a window in images with contiguous rows.
#if defined(TESSERA_KERNELS_SEEN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_SEEN_INL_H_
#undef TESSERA_KERNELS_SEEN_INL_H_
#else
#define TESSERA_KERNELS_SEEN_INL_H_
#endif

#include <hwy/highway.h>
#include <tessera/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/simd.h"
#include "kernels/common/convert-inl.h"
#include "kernels/common/panels-inl.h"
#include "kernels/common/window.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr uint32_t kMaxSeenCols = 128;

// Copies `count` floats by vectors, the last two of which may overlap.
HWY_INLINE void copy_run(const float* from, float* to, size_t count) {
  const Floats d;
  const hn::CappedTag<float, 4> four;
  if (count >= kLanes) {
    for (size_t i = 0; i + kLanes <= count; i += kLanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
    hn::StoreU(hn::LoadU(d, from + count - kLanes), d, to + count - kLanes);
  } else if (count >= 4) {
    for (size_t i = 0; i + 4 <= count; i += 4) hn::StoreU(hn::LoadU(four, from + i), four, to + i);
    hn::StoreU(hn::LoadU(four, from + count - 4), four, to + count - 4);
  } else {
    for (size_t i = 0; i < count; ++i) to[i] = from[i];
  }
}

#if TESSERA_HAS_VECTORS
// Every other element, up to a vector of results.
HWY_INLINE void copy_every_other(const float* from, float* to, size_t count) {
  const Floats d;
  const size_t last = 2 * std::min<size_t>(count, kLanes) - 1;  // elements up to the last one
  const auto lower = last >= kLanes ? hn::LoadU(d, from) : load_first(d, from, last);
  const auto upper = last > kLanes ? load_first(d, from + kLanes, last - kLanes) : hn::Zero(d);
  const auto even = hn::ConcatEven(d, upper, lower);
  if (count >= kLanes)
    hn::StoreU(even, d, to);
  else
    hn::BlendedStore(even, hn::FirstN(d, count), d, to);
}
#endif

// Copies `count` floats that are `step` apart.
HWY_INLINE void copy_strided(const float* from, int64_t step, float* to, size_t count) {
  if (step == 1) return copy_run(from, to, count);
  size_t i = 0;
#if TESSERA_HAS_VECTORS
  if (step == 2)
    for (; i < count; i += kLanes) copy_every_other(from + 2 * i, to + i, count - i);
#endif
  for (; i < count; ++i) to[i] = from[static_cast<int64_t>(i) * step];
}

// Neighbours among the columns of a copy, whose first element is at position `from` of the images.
struct SeenRun {
  uint32_t to, count;
  int64_t from;
};

// Copies a row of runs in ascending order, with zeros between them; elements of the images are `col_stride`
// apart, elements of a run `step`.
HWY_INLINE void copy_runs(const float* images, int64_t col_stride, int64_t step, const SeenRun* runs,
                          uint32_t count, float* to, uint32_t width) {
  uint32_t end = 0;
  for (uint32_t r = 0; r < count; ++r) {
    const SeenRun& run = runs[r];
    std::fill(to + end, to + run.to, 0.0F);
    copy_strided(images + run.from * col_stride, step, to + run.to, run.count);
    end = run.to + run.count;
  }
  std::fill(to + end, to + width, 0.0F);
}

// Columns of a panel as elements under a tap: runs of neighbours, with zeros between them.
class SeenColumns {
 public:
  SeenColumns(const MatrixView<const float>& x, const Seen& seen, const PanelTile& tile)
      : x_(x),
        seen_(seen),
        w_(seen.window),
        tile_(tile),
        size_(int64_t{seen.channels - 1} * x.row_stride + int64_t{seen.positions - 1} * x.col_stride + 1) {}

  // Rows [begin, begin + rows) of X.
  void copy(uint32_t begin, uint32_t rows) {
    float* to = tile_.to;
    for (uint32_t row = begin; row < begin + rows;) {
      const uint32_t channel = row % seen_.channels;
      const uint32_t count = std::min(seen_.channels - channel, begin + rows - row);
      find_runs(row / seen_.channels);
      for (uint32_t i = 0; i < count; ++i, to += tile_.width)
        copy_row((int64_t{channel} + i) * x_.row_stride, to);
      row += count;
    }
  }

 private:
  void find_runs(uint32_t tap) {
    const uint32_t tap_row = tap / w_.kernel_width, tap_col = tap % w_.kernel_width;
    const Span inside = w_.out_cols(tap_col);
    runs_ = 0;
    for (uint32_t col = 0, step = 0; col < tile_.cols; col += step) {
      const uint32_t position = seen_.first + static_cast<uint32_t>(tile_.col_begin) + col;
      const uint32_t out_col = position % w_.out_width;
      step = std::min(w_.out_width - out_col, tile_.cols - col);
      const int64_t row = w_.row(position / w_.out_width % w_.out_height, tap_row);
      const uint32_t begin = std::max(out_col, inside.begin), end = std::min(out_col + step, inside.end);
      if (!w_.has_row(row) || begin >= end) continue;
      const int64_t image = position / w_.out_positions();
      add({col + begin - out_col, end - begin,
           (image * w_.height + row) * w_.width + w_.col(begin, tap_col)});
    }
    mask_shifted();
  }

  void add(const SeenRun& run) {
    SeenRun* last = runs_ > 0 ? &run_[runs_ - 1] : nullptr;
    const bool follows = last != nullptr && w_.stride_across == 1 && last->to + last->count == run.to &&
                         last->from + last->count == run.from;
    if (follows)
      last->count += run.count;
    else
      run_[runs_++] = run;
  }

  // Where images keep their size, all columns have the same distance from their elements; columns outside the
  // runs are masked.
  void mask_shifted() {
    const bool keeps_size = w_.stride_across == 1 && w_.stride_down == 1 && w_.out_width == w_.width &&
                            w_.out_height == w_.height && x_.col_stride == 1 && tile_.width % kLanes == 0;
    shifts_ = keeps_size && runs_ > 1;
    if (!shifts_) return;
    shift_ = run_[0].from - run_[0].to;
    std::fill_n(mask_, tile_.width, 0U);
    for (uint32_t r = 0; r < runs_; ++r) std::fill_n(mask_ + run_[r].to, run_[r].count, ~0U);
  }

  // `channel` is the channel's offset in the images.
  HWY_INLINE void copy_row(int64_t channel, float* to) const {
    const int64_t shifted = channel + shift_;
    if (shifts_ && shifted >= 0 && shifted + tile_.width <= size_) return copy_masked(x_.data + shifted, to);
    copy_runs(x_.data + channel, x_.col_stride, x_.col_stride * w_.stride_across, run_, runs_, to,
              tile_.width);
  }

  HWY_INLINE void copy_masked(const float* from, float* to) const {
    const Floats d;
    const hn::RebindToUnsigned<Floats> bits;
    for (uint32_t c = 0; c < tile_.width; c += kLanes) {
      const auto mask = hn::BitCast(d, hn::LoadU(bits, mask_ + c));
      hn::StoreU(hn::And(hn::LoadU(d, from + c), mask), d, to + c);
    }
  }

  const MatrixView<const float>& x_;
  const Seen& seen_;
  const Window& w_;
  const PanelTile& tile_;
  int64_t size_;  // size of the memory of all images
  uint32_t runs_ = 0;
  bool shifts_ = false;
  int64_t shift_ = 0;
  SeenRun run_[kMaxSeenCols];
  HWY_ALIGN uint32_t mask_[kMaxSeenCols];
};

// Copies rows [begin, begin + rows) of X in the micro-tile's columns, and zeros for `rows` to `depth`.
inline void copy_panel_rows(MatrixView<const float> x, const Seen& seen, uint32_t begin, uint32_t rows,
                            uint32_t depth, const PanelTile& tile) {
  if (!seen) {
    x.data += begin * x.row_stride;
    return copy_micro_tile(x, rows, depth, tile);
  }
  SeenColumns(x, seen, tile).copy(begin, rows);
  std::fill(tile.to + size_t{rows} * tile.width, tile.to + size_t{depth} * tile.width, 0.0F);
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
