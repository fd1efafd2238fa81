// Winograd's forward product of one slice.
#if defined(TESSERA_DENSE_WINOGRAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_DENSE_WINOGRAD_INL_H_
#undef TESSERA_DENSE_WINOGRAD_INL_H_
#else
#define TESSERA_DENSE_WINOGRAD_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/host/dense/finish-inl.h"
#include "kernels/host/dense/winograd.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One dimension of the transformations of images, weights and sums: Bᵀ, G and Aᵀ of the paper.
template <class V>
HWY_INLINE void transform_image(V a, V b, V c, V d, V* to, size_t step) {
  to[0] = hn::Sub(a, c);
  to[step] = hn::Add(b, c);
  to[2 * step] = hn::Sub(c, b);
  to[3 * step] = hn::Sub(b, d);
}
template <class V>
HWY_INLINE void transform_weight(V a, V b, V c, V* to, size_t step) {
  const PanelFloats d;
  const V half = hn::Set(d, 0.5F), ends = hn::Add(a, c);
  to[0] = a;
  to[step] = hn::Mul(half, hn::Add(ends, b));
  to[2 * step] = hn::Mul(half, hn::Sub(ends, b));
  to[3 * step] = c;
}
template <class V>
HWY_INLINE void transform_sums(V a, V b, V c, V d, V* to, size_t step) {
  to[0] = hn::Add(a, hn::Add(b, c));
  to[step] = hn::Sub(hn::Sub(b, c), d);
}

// Y = epilogue(X·Wᵀ), of what a window sees.
class WinogradForward {
 public:
  // W in panels, tap by tap.
  WinogradForward(const program::Vertex& v, const FieldView& images, const FieldView& w, const Winograd& plan,
                  float* scratch, const DenseEpilogue& epilogue)
      : v_(v),
        images_(images),
        w_(w),
        y_(epilogue.result),
        plan_(plan),
        layout_(plan, w.rows),
        scratch_(scratch),
        finish_(epilogue) {
    for (uint32_t p = 0; p < kPoints; ++p) offsets_[p] = plan_.offset_of(p);
  }

  // Y begins at position `first`.
  void run(uint32_t first) const {
    if (y_.rows == 0) return;
    v_.enter(Phase::rearrange);
    program::share_work(v_.helpers, w_.rows, nullptr,
                        [&](uint32_t panel, std::byte*) { transform_panel(panel); });
    const uint32_t end = plan_.end_of(first + y_.rows - 1);
    for (uint32_t tile = plan_.tile_of(first), count; tile < end; tile += count) {
      count = std::min(plan_.together(), end - tile);
      v_.enter(Phase::rearrange);
      for (uint32_t i = 0; i < count; ++i) transform_tile(tile + i, tiles() + i * kDenseRowStep);
      v_.enter(Phase::compute);
      const uint32_t groups = (w_.rows + kDensePanels - 1) / kDensePanels;
      program::share_work(v_.helpers, groups, scratch_, [&](uint32_t i, std::byte* of_thread) {
        auto* const own = reinterpret_cast<float*>(of_thread);
        multiply(i * kDensePanels, count, own + layout_.sums);
        finish(i * kDensePanels, tile, count, first, own);
      });
    }
  }

 private:
  using Vector = hn::Vec<PanelFloats>;
  static constexpr uint32_t kSide = Winograd::kSide, kPoints = Winograd::kPoints;
  static constexpr uint32_t kResults = Winograd::kResults, kTaps = 3;

  float* tiles() const { return scratch_ + layout_.tiles; }
  float* weights_at(uint32_t panel) const { return scratch_ + layout_.weights + panel * plan_.panel_step(); }

  void transform_panel(uint32_t panel) const {
    const PanelFloats d;
    const size_t step = size_t{plan_.channels} * kPanelRows;  // from tap to tap, and from point to point
    const float* from = row_of<const float>(w_, panel);
    float* to = weights_at(panel);
    for (size_t i = 0; i < step; i += kPanelLanes) {
      Vector rows[kSide * kTaps], points[kPoints];
#pragma GCC unroll 3
      for (uint32_t c = 0; c < kTaps; ++c) {
        const auto tap = [&](size_t r) HWY_ATTR { return hn::LoadU(d, from + (r * kTaps + c) * step + i); };
        transform_weight(tap(0), tap(1), tap(2), rows + c, kTaps);
      }
#pragma GCC unroll 4
      for (uint32_t r = 0; r < kSide; ++r) {
        const Vector* row = rows + r * kTaps;
        transform_weight(row[0], row[1], row[2], points + r * kSide, 1);
      }
#pragma GCC unroll 16
      for (uint32_t p = 0; p < kPoints; ++p) hn::StoreU(points[p], d, to + p * step + i);
    }
  }

  // The channels of each position under a tile, or zeros.
  std::array<const float*, kPoints> positions_under(uint32_t tile) const {
    alignas(64) static constexpr float kZeros[kDenseDepth] = {};
    const Window& w = plan_.window;
    const uint32_t of_image = plan_.tiles_down() * plan_.tiles_across(), in_image = tile % of_image;
    const int64_t top = int64_t{kResults} * (in_image / plan_.tiles_across()) - w.top;
    const int64_t left = int64_t{kResults} * (in_image % plan_.tiles_across()) - w.left;
    std::array<const float*, kPoints> at;
    for (uint32_t p = 0; p < kPoints; ++p) {
      const int64_t row = top + p / kSide, col = left + p % kSide;
      const int64_t place = (int64_t{tile / of_image} * w.height + row) * w.width + col;
      at[p] =
          w.has_row(row) && w.has_col(col) ? images_.as<const float>() + place * images_.row_stride : kZeros;
    }
    return at;
  }

  void transform_tile(uint32_t tile, float* to) const {
    const PanelFloats d;
    const std::array<const float*, kPoints> at = positions_under(tile);
    each_vector(plan_.channels, [&](size_t i, size_t count) HWY_ATTR {
      Vector rows[kPoints], points[kPoints];
#pragma GCC unroll 4
      for (uint32_t c = 0; c < kSide; ++c) {
        const auto position = [&](uint32_t r) HWY_ATTR { return load_some(at[r * kSide + c] + i, count); };
        transform_image(position(0), position(1), position(2), position(3), rows + c, kSide);
      }
#pragma GCC unroll 4
      for (uint32_t r = 0; r < kSide; ++r) {
        const Vector* row = rows + r * kSide;
        transform_image(row[0], row[1], row[2], row[3], points + r * kSide, 1);
      }
#pragma GCC unroll 16
      for (uint32_t p = 0; p < kPoints; ++p) hn::StoreU(points[p], d, to + offsets_[p] + i);
    });
  }

  // Multiplies the tiles by some panels, point by point.
  void multiply(uint32_t panel, uint32_t count, float* sums) const {
    const uint32_t panels = std::min(kDensePanels, w_.rows - panel);
    const size_t weights_step = size_t{plan_.channels} * kPanelRows;
    const float* const next = weights_at(panel + kDensePanels < w_.rows ? panel + kDensePanels : 0);
    for (uint32_t p = 0; p < kPoints; ++p) {
      const float* weights = weights_at(panel) + p * weights_step;
      const MicroTile<float> tile = {.panels = weights,
                                     .panel_step = plan_.panel_step(),
                                     .factors = tiles() + offsets_[p],
                                     .factor_step = 1,
                                     .depth = plan_.channels,
                                     .sums = sums + size_t{p} * plan_.together() * kDenseSumStep,
                                     .sums_step = kPanelRows,
                                     .adds = false,
                                     .next = p + 1 < kPoints ? weights + weights_step : next};
      run_micro_tiles<kAcrossRows>(tile, panels, count, [](uint32_t, uint32_t) {});
    }
  }

  // Computes the results of tiles for some panels, by parts of rows of tiles.
  void finish(uint32_t panel, uint32_t tile, uint32_t count, uint32_t first, float* of_thread) const {
    const uint32_t across = plan_.tiles_across(), down = plan_.tiles_down();
    const float* sums = of_thread + layout_.sums;
    float* const results = of_thread + layout_.results;
    for (const uint32_t end = tile + count; tile < end;) {
      const uint32_t row = tile / across, col = tile % across;
      const uint32_t some = std::min({WinogradScratch::kFinished, end - tile, across - col});
      for (uint32_t i = 0; i < some; ++i, sums += kDenseSumStep)
        transform_sums_of(sums, results + size_t{i} * kResults * kDenseSumStep);
      for (uint32_t i = 0; i < kResults; ++i)
        finish_row(panel, row / down, row % down * kResults + i, col * kResults, some * kResults, first,
                   results + i * kRowStep);
      tile += some;
    }
  }

  static constexpr size_t kRowStep = size_t{WinogradScratch::kFinished} * kResults * kDenseSumStep;

  // The results of a tile, one row kRowStep after the other.
  void transform_sums_of(const float* sums, float* to) const {
    const PanelFloats d;
    const size_t step = size_t{plan_.together()} * kDenseSumStep;
    for (size_t i = 0; i < kDenseSumStep; i += kPanelLanes) {
      Vector rows[kResults * kSide], results[kResults * kResults];
#pragma GCC unroll 4
      for (uint32_t c = 0; c < kSide; ++c) {
        const auto point = [&](size_t r) HWY_ATTR { return hn::LoadU(d, sums + (r * kSide + c) * step + i); };
        transform_sums(point(0), point(1), point(2), point(3), rows + c, kSide);
      }
#pragma GCC unroll 2
      for (uint32_t r = 0; r < kResults; ++r) {
        const Vector* row = rows + r * kSide;
        transform_sums(row[0], row[1], row[2], row[3], results + r * kResults, 1);
#pragma GCC unroll 2
        for (uint32_t c = 0; c < kResults; ++c)
          hn::StoreU(results[r * kResults + c], d, to + r * kRowStep + c * kDenseSumStep + i);
      }
    }
  }

  // Finishes positions of a row of results that are within the image and the slice.
  void finish_row(uint32_t panel, uint32_t image, uint32_t row, uint32_t col, uint32_t count, uint32_t first,
                  float* results) const {
    const Window& w = plan_.window;
    if (row >= w.out_height) return;
    const uint32_t position = (image * w.out_height + row) * w.out_width + col;
    const uint32_t begin = std::max(position, first);
    const uint32_t end = std::min(position + std::min(count, w.out_width - col), first + y_.rows);
    if (begin >= end) return;
    const uint32_t feature = panel * kPanelRows;
    finish_(feature, std::min(kDenseSumStep, y_.cols - feature), begin - first, end - begin,
            results + size_t{begin - position} * kDenseSumStep);
  }

  const program::Vertex& v_;
  const FieldView& images_;
  const FieldView& w_;
  const FieldView& y_;
  const Winograd plan_;
  const WinogradScratch layout_;
  float* const scratch_;
  const RowFinish finish_;
  std::array<size_t, kPoints> offsets_ = {};  // from tile to point
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
