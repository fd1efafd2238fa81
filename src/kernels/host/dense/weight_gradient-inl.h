// The weight gradient of one slice.
#if defined(TESSERA_DENSE_WEIGHT_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_DENSE_WEIGHT_GRADIENT_INL_H_
#undef TESSERA_DENSE_WEIGHT_GRADIENT_INL_H_
#else
#define TESSERA_DENSE_WEIGHT_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/host/dense/copy-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// dW = dYᵀ·X in panels.
class PanelWeightGradient {
 public:
  PanelWeightGradient(const program::Vertex& v, bool adds)
      : v_(v),
        dy_(v.fields[panel_weight_gradient_field::dy]),
        x_(v.fields[panel_weight_gradient_field::x]),
        dw_(v.fields[panel_weight_gradient_field::dw]),
        scratch_(dy_.rows, x_.cols, x_.type != Type::f32),
        adds_(adds) {}

  void run() const {
    float* scratch = v_.fields[panel_weight_gradient_field::scratch].as<float>();
    FieldView x = x_;
    if (x_.type != Type::f32) {
      v_.enter(Phase::rearrange);
      copy_rows(x_, 0, x_.rows, 0, x_.cols, scratch + scratch_.x, scratch_.x_step);
      x.data = reinterpret_cast<std::byte*>(scratch + scratch_.x);
      x.row_stride = static_cast<int64_t>(scratch_.x_step);
      v_.enter(Phase::compute);
    }
    const uint32_t groups = (dw_.rows + kDensePanels - 1) / kDensePanels;
    const uint32_t parts = (x_.cols + kDenseColumns - 1) / kDenseColumns;
    program::share_work(v_.helpers, groups * parts, scratch, [&](uint32_t i, std::byte* of_thread) {
      const uint32_t col = i % parts * kDenseColumns;
      group(i / parts * kDensePanels, x, col, std::min(kDenseColumns, x_.cols - col),
            reinterpret_cast<float*>(of_thread));
    });
  }

 private:
  // Computes some panels × some columns of dW.
  void group(uint32_t panel, const FieldView& x, uint32_t col, uint32_t cols, float* of_thread) const {
    const uint32_t panels = std::min(kDensePanels, dw_.rows - panel);
    float* dy = of_thread + scratch_.dy;
    copy_panels(panel, panels, dy);
    const MicroTile<float> tile = {.panels = dy,
                                   .panel_step = size_t{dy_.rows} * kPanelRows,
                                   .factors = x.as<const float>() + col,
                                   .factor_step = static_cast<size_t>(x.row_stride),
                                   .depth = dy_.rows,
                                   .sums = nullptr,
                                   .sums_step = 0,
                                   .adds = adds_,
                                   .next = dy};
    if (dw_.type == Type::f32) return in_place(tile, panel, panels, col, cols);
    with_float_type(dw_.type, [&]<class T>(T) HWY_ATTR {
      rounded<T>(tile, panel, panels, col, cols, of_thread + scratch_.sums);
    });
  }

  void in_place(MicroTile<float> tile, uint32_t panel, uint32_t panels, uint32_t col, uint32_t cols) const {
    tile.sums = row_of<float>(dw_, panel) + size_t{col} * kPanelRows;
    tile.sums_step = static_cast<size_t>(dw_.row_stride);
    run_micro_tiles<kAlongRow>(tile, panels, cols, [&](uint32_t begin, uint32_t count) HWY_ATTR {
      const uint32_t rows = rows_of(panel + panels - 1);
      if (rows == kPanelRows) return;
      float* last = tile.sums + (panels - 1) * tile.sums_step;
      for (uint32_t c = begin; c < begin + count; ++c)
        std::fill(last + c * kPanelRows + rows, last + (c + 1) * kPanelRows, 0.0F);
    });
  }

  template <class T>
  void rounded(MicroTile<float> tile, uint32_t panel, uint32_t panels, uint32_t col, uint32_t cols,
               float* sums) const {
    const PanelFloats d;
    tile.adds = false;
    tile.sums = sums;
    tile.sums_step = size_t{kTileFactors} * kPanelRows;
    const float* factors = tile.factors;
    const TileSplit split{cols, kTileFactors};
    for (uint32_t i = 0; i < split.tiles(); ++i) {
      const uint32_t begin = split.begin(i), count = split.begin(i + 1) - begin;
      tile.factors = factors + begin;
      run_micro_tiles<kAlongRow>(tile, panels, count, [](uint32_t, uint32_t) {});
      for (uint32_t p = 0; p < panels; ++p) {
        const uint32_t rows = rows_of(panel + p);
        T* dw = row_of<T>(dw_, panel + p) + size_t{col + begin} * kPanelRows;
        const float* from = sums + p * tile.sums_step;
        for (size_t at = 0; at < size_t{count} * kPanelRows; at += kPanelLanes) {
          auto value = hn::LoadU(d, from + at);
          if (adds_) value = hn::Add(value, load_f32(d, dw + at));
          const size_t lane = at % kPanelRows;
          value = hn::IfThenElseZero(hn::FirstN(d, rows > lane ? rows - lane : 0), value);
          store_rounded(d, value, dw + at);
        }
      }
    }
  }

  // Number of rows of dW in a panel.
  uint32_t rows_of(uint32_t panel) const { return std::min(kPanelRows, dy_.cols - panel * kPanelRows); }

  // Copies panels of dY as FP32: kPanelRows columns for each row.
  void copy_panels(uint32_t panel, uint32_t panels, float* to) const {
    for (uint32_t p = panel; p < panel + panels; ++p, to += size_t{dy_.rows} * kPanelRows) {
      const uint32_t rows = rows_of(p);
      if (rows < kPanelRows) std::fill(to, to + size_t{dy_.rows} * kPanelRows, 0.0F);
      copy_rows(dy_, 0, dy_.rows, p * kPanelRows, rows, to, kPanelRows);
    }
  }

  const program::Vertex& v_;
  const FieldView& dy_;
  const FieldView& x_;
  const FieldView& dw_;
  const DenseGradientScratch scratch_;
  const bool adds_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
