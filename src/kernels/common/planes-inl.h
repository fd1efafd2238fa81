// Copying images to planes.
#if defined(TESSERA_KERNELS_PLANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_PLANES_INL_H_
#undef TESSERA_KERNELS_PLANES_INL_H_
#else
#define TESSERA_KERNELS_PLANES_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>
#include <tessera/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/planes.h"
#include "kernels/common/seen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Copies what one tap of a window sees of images with contiguous rows to the rows of a piece: the rows
// of positions, and some behind them.
class PlaneCopy {
 public:
  PlaneCopy(const MatrixView<const float>& images, const Window& window, const Planes& planes,
            const Planes::Piece& piece, uint32_t rows, uint32_t tap)
      : images_(images), w_(window), planes_(planes), width_(round_up(rows * planes.pitch(), kMaxLanes)) {
    const uint32_t tap_col = tap % w_.kernel_width;
    const Span inside = w_.out_cols(tap_col);
    for (uint32_t row = 0; row < rows; ++row)
      for (uint32_t image = 0; image < piece.images; ++image) {
        const int64_t y = w_.row(piece.row + row, tap / w_.kernel_width);
        if (!w_.has_row(y) || inside.size() == 0) continue;
        add({row * planes_.pitch() + image * w_.out_width + inside.begin, inside.size(),
             (int64_t{piece.image + image} * w_.height + y) * w_.width + w_.col(inside.begin, tap_col)});
      }
    if (kMasked && w_.stride_across == 1) find_parts();
  }

  // Copies `count` channels from `first` on to rows `step` apart, with zeros where nothing is seen. The
  // images' rows are far apart: each channel prefetches the next one.
  void copy(uint32_t first, uint32_t count, float* to, size_t step) const {
    for (uint32_t i = 0; i < count; ++i, to += step) {
      const float* images = images_.pointer_to(first + i, 0);
      if (parts_ > 0)
        copy_parts(images, to);
      else
        copy_runs(images, 1, w_.stride_across, run_, runs_, to, width_);
    }
  }

 private:
  // Whether lanes that memory does not hold can be masked.
  static constexpr bool kMasked = HWY_MEM_OPS_MIGHT_FAULT == 0;

  // Lanes of a vector that are neighbours; lane 0 would be at position `from`.
  struct Part {
    uint16_t lanes;  // a bit for each
    bool is_last;
    int64_t from;
  };

  void add(const SeenRun& run) {
    SeenRun* last = runs_ > 0 ? &run_[runs_ - 1] : nullptr;
    if (last != nullptr && w_.stride_across == 1 && last->to + last->count == run.to &&
        last->from + last->count == run.from)
      last->count += run.count;
    else
      run_[runs_++] = run;
  }

  void find_parts() {
    uint32_t r = 0;
    for (uint32_t begin = 0; begin < width_; begin += kLanes) {
      const auto end = begin + static_cast<uint32_t>(kLanes);
      Part part{0, true, 0};
      for (; r < runs_ && run_[r].to < end; ++r) {
        const SeenRun& run = run_[r];
        const uint32_t first = std::max(run.to, begin) - begin,
                       last = std::min(run.to + run.count, end) - begin;
        const int64_t from = run.from - run.to + begin;
        if (part.lanes != 0 && from != part.from) {
          part.is_last = false;
          part_[parts_++] = part;
          part = {0, true, 0};
        }
        part.from = from;
        part.lanes = static_cast<uint16_t>(part.lanes | ((1U << last) - (1U << first)));
        if (run.to + run.count > end) break;
      }
      part_[parts_++] = part;
    }
  }

  HWY_INLINE void copy_parts(const float* images, float* to) const {
    const Floats d;
    const auto load = [&](const Part& part) HWY_ATTR {
      return hn::MaskedLoad(hn::LoadMaskBits(d, reinterpret_cast<const uint8_t*>(&part.lanes)), d,
                            images + part.from);
    };
    for (const Part *part = part_, *end = part_ + parts_; part < end; ++part, to += kLanes) {
      auto v = load(*part);
      while (!part->is_last) v = hn::Or(v, load(*++part));
      hwy::Prefetch(images + part->from + images_.row_stride);
      hn::Store(v, d, to);
    }
  }

  const MatrixView<const float>& images_;
  const Window w_;
  const Planes& planes_;
  const uint32_t width_;  // of all rows
  uint32_t runs_ = 0, parts_ = 0;
  SeenRun run_[Planes::kMostRuns];
  Part part_[kMasked ? Planes::kMostRuns + 2 * Planes::kMostStep / kLanes : 1];
};

// Copies a piece of all planes, and zeros behind them.
inline void copy_planes(const MatrixView<const float>& images, const Planes& planes,
                        const Planes::Piece& piece, float* to) {
  const Window w = planes.over_images();
  const uint32_t channels = planes.seen().channels;
  for (uint32_t tap = 0; tap < w.taps(); ++tap)
    PlaneCopy(images, w, planes, piece, piece.rows + planes.rows_behind(), tap)
        .copy(0, channels, to + size_t{tap} * channels * planes.step(), planes.step());
  std::fill(to + planes.zeros(), to + planes.floats(), 0.0F);
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
