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
struct ImageLine {
  static constexpr uint32_t kFrom = Winograd::kSide, kTo = Winograd::kSide;
  template <class V>
  static HWY_INLINE void apply(const V* from, V* to, size_t step) {
    to[0] = hn::Sub(from[0], from[2]);
    to[step] = hn::Add(from[1], from[2]);
    to[2 * step] = hn::Sub(from[2], from[1]);
    to[3 * step] = hn::Sub(from[1], from[3]);
  }
};
struct WeightLine {
  static constexpr uint32_t kFrom = Winograd::kTaps, kTo = Winograd::kSide;
  template <class V>
  static HWY_INLINE void apply(const V* from, V* to, size_t step) {
    const PanelFloats d;
    const V half = hn::Set(d, 0.5F), ends = hn::Add(from[0], from[2]);
    to[0] = from[0];
    to[step] = hn::Mul(half, hn::Add(ends, from[1]));
    to[2 * step] = hn::Mul(half, hn::Sub(ends, from[1]));
    to[3 * step] = from[2];
  }
};
struct SumLine {
  static constexpr uint32_t kFrom = Winograd::kSide, kTo = Winograd::kResults;
  template <class V>
  static HWY_INLINE void apply(const V* from, V* to, size_t step) {
    to[0] = hn::Add(from[0], hn::Add(from[1], from[2]));
    to[step] = hn::Sub(hn::Sub(from[1], from[2]), from[3]);
  }
};

// Transforms both dimensions of a square of vectors, from load(row, column) to store(row, column, vector).
template <class Line, class Load, class Store>
HWY_INLINE void transform(const Load& load, const Store& store) {
  using Vector = hn::Vec<PanelFloats>;
  Vector lines[Line::kTo * Line::kFrom];
#pragma GCC unroll 4
  for (uint32_t c = 0; c < Line::kFrom; ++c) {
    Vector column[Line::kFrom];
#pragma GCC unroll 4
    for (uint32_t r = 0; r < Line::kFrom; ++r) column[r] = load(r, c);
    Line::apply(column, lines + c, Line::kFrom);
  }
#pragma GCC unroll 4
  for (uint32_t r = 0; r < Line::kTo; ++r) {
    Vector line[Line::kTo];
    Line::apply(lines + r * Line::kFrom, line, 1);
#pragma GCC unroll 4
    for (uint32_t c = 0; c < Line::kTo; ++c) store(r, c, line[c]);
  }
}

// The positions of images under Winograd's tiles.
class WinogradImages {
 public:
  WinogradImages(const Winograd& plan, const FieldView& images) : plan_(plan), images_(images) {}

  // Transforms some channels of a tile: its points begin at to + offsets[point].
  void transform_tile(uint32_t tile, uint32_t channel, uint32_t channels,
                      const std::array<size_t, Winograd::kPoints>& offsets, float* to) const {
    const PanelFloats d;
    const std::array<const float*, Winograd::kPoints> at = positions_under(tile);
    each_vector(channels, [&](size_t i, size_t count) HWY_ATTR {
      transform<ImageLine>(
          [&](uint32_t r, uint32_t c)
              HWY_ATTR { return load_some(at[r * Winograd::kSide + c] + channel + i, count); },
          [&](uint32_t r, uint32_t c, hn::Vec<PanelFloats> point)
              HWY_ATTR { hn::StoreU(point, d, to + offsets[r * Winograd::kSide + c] + i); });
    });
  }

 private:
  // The channels of each position under a tile, or zeros.
  std::array<const float*, Winograd::kPoints> positions_under(uint32_t tile) const {
    alignas(64) static constexpr float kZeros[kDenseDepth] = {};
    const Window& w = plan_.window;
    const Winograd::Place place = plan_.place_of(tile);
    std::array<const float*, Winograd::kPoints> at;
    for (uint32_t p = 0; p < Winograd::kPoints; ++p) {
      const int64_t row = int64_t{place.row} - w.top + p / Winograd::kSide;
      const int64_t col = int64_t{place.col} - w.left + p % Winograd::kSide;
      const int64_t position = (int64_t{place.image} * w.height + row) * w.width + col;
      at[p] = w.has_row(row) && w.has_col(col) ? images_.as<const float>() + position * images_.row_stride
                                               : kZeros;
    }
    return at;
  }

  const Winograd& plan_;
  const FieldView& images_;
};

// Y = epilogue(X·Wᵀ), of what a window sees.
class WinogradForward {
 public:
  // W in panels, tap by tap.
  WinogradForward(const program::Vertex& v, const FieldView& images, const FieldView& w, const Winograd& plan,
                  float* scratch, const DenseEpilogue& epilogue)
      : v_(v),
        w_(w),
        y_(epilogue.result),
        plan_(plan),
        under_(plan_, images),
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
      for (uint32_t i = 0; i < count; ++i)
        under_.transform_tile(tile + i, 0, plan_.channels, offsets_, tiles() + i * kDenseRowStep);
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
  static constexpr uint32_t kResults = Winograd::kResults;

  float* tiles() const { return scratch_ + layout_.tiles; }
  float* weights_at(uint32_t panel) const { return scratch_ + layout_.weights + panel * plan_.panel_step(); }

  void transform_panel(uint32_t panel) const {
    const PanelFloats d;
    const size_t step = size_t{plan_.channels} * kPanelRows;  // from tap to tap, and from point to point
    const float* from = row_of<const float>(w_, panel);
    float* to = weights_at(panel);
    for (size_t i = 0; i < step; i += kPanelLanes)
      transform<WeightLine>(
          [&](size_t r, size_t c)
              HWY_ATTR { return hn::LoadU(d, from + (r * Winograd::kTaps + c) * step + i); },
          [&](size_t r, size_t c, Vector point)
              HWY_ATTR { hn::StoreU(point, d, to + (r * kSide + c) * step + i); });
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
    for (size_t i = 0; i < kDenseSumStep; i += kPanelLanes)
      transform<SumLine>([&](size_t r, size_t c)
                             HWY_ATTR { return hn::LoadU(d, sums + (r * kSide + c) * step + i); },
                         [&](size_t r, size_t c, Vector result)
                             HWY_ATTR { hn::StoreU(result, d, to + r * kRowStep + c * kDenseSumStep + i); });
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
  const FieldView& w_;
  const FieldView& y_;
  const Winograd plan_;
  const WinogradImages under_;
  const WinogradScratch layout_;
  float* const scratch_;
  const RowFinish finish_;
  std::array<size_t, kPoints> offsets_ = {};  // from tile to point
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
