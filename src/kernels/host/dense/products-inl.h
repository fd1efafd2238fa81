// The dense products of one slice.
#if defined(TESSERA_DENSE_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_DENSE_PRODUCTS_INL_H_
#undef TESSERA_DENSE_PRODUCTS_INL_H_
#else
#define TESSERA_DENSE_PRODUCTS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/activation-inl.h"
#include "kernels/host/dense/copy-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using program::Phase;

// Calls work(begin, end) for the batch in parts that scratch has room for.
template <class Work>
void each_batch(uint32_t rows, const Work& work) {
  for (uint32_t begin = 0; begin < rows; begin += kDenseBatch)
    work(begin, std::min(begin + kDenseBatch, rows));
}

// Y = activation(X·Wᵀ + bias).
class PanelForward {
 public:
  explicit PanelForward(const program::Vertex& v)
      : v_(v),
        x_(v.fields[panel_forward_field::x]),
        w_(v.fields[panel_forward_field::w]),
        bias_(v.fields[panel_forward_field::bias]),
        y_(v.fields[panel_forward_field::y]),
        scratch_(x_.rows, x_.cols, false),
        activation_(static_cast<Activation>(v.params[panel_forward_param::activation])) {}

  void run() const {
    float* scratch = v_.fields[panel_forward_field::scratch].as<float>();
    const uint32_t groups = (w_.rows + kDensePanels - 1) / kDensePanels;
    each_batch(y_.rows, [&](uint32_t begin, uint32_t end) {
      v_.enter(Phase::rearrange);
      copy_passes(x_, begin, end - begin, scratch + scratch_.rows);
      v_.enter(Phase::compute);
      program::share_work(v_.helpers, groups, scratch, [&](uint32_t i, std::byte* of_thread) {
        group(i * kDensePanels, begin, end, scratch + scratch_.rows,
              reinterpret_cast<float*>(of_thread) + scratch_.sums);
      });
    });
  }

 private:
  // All rows of the batch times some panels.
  void group(uint32_t panel, uint32_t begin, uint32_t end, const float* rows, float* sums) const {
    const uint32_t panels = std::min(kDensePanels, w_.rows - panel);
    const uint32_t next = panel + kDensePanels < w_.rows ? panel + kDensePanels : panel;
    const uint32_t passes = dense_passes(x_.cols);
    with_float_type(w_.type, [&]<class T>(T) HWY_ATTR {
      for (uint32_t pass = 0; pass < passes; ++pass) {
        const uint32_t col = pass * kDenseDepth;
        const size_t value = size_t{col} * kPanelRows;
        const MicroTile<T> tile = {.panels = row_of<const T>(w_, panel) + value,
                                   .panel_step = static_cast<size_t>(w_.row_stride),
                                   .factors = rows + size_t{pass} * (end - begin) * kDenseRowStep,
                                   .factor_step = 1,
                                   .depth = std::min(kDenseDepth, x_.cols - col),
                                   .sums = sums,
                                   .sums_step = kPanelRows,
                                   .adds = pass > 0,
                                   .next = row_of<const T>(w_, next) + value};
        run_micro_tiles<kDenseRowStep>(tile, panels, end - begin, [&](uint32_t row, uint32_t count) HWY_ATTR {
          if (pass + 1 == passes) finish(panel, begin + row, count, sums + row * kDenseSumStep);
        });
      }
    });
  }

  void finish(uint32_t panel, uint32_t row, uint32_t rows, const float* sums) const {
    const PanelFloats d;
    const uint32_t col = panel * kPanelRows, cols = std::min(kDenseSumStep, y_.cols - col);
    const float* bias = bias_.empty() ? nullptr : bias_.as<const float>() + col;
    with_float_type(y_.type, [&]<class T>(T) HWY_ATTR {
      for (uint32_t r = row; r < row + rows; ++r, sums += kDenseSumStep) {
        T* y = row_of<T>(y_, r) + col;
        each_vector(cols, [&](size_t i, size_t count) HWY_ATTR {
          auto value = hn::LoadU(d, sums + i);
          if (bias != nullptr) value = hn::Add(value, load_some(bias + i, count));
          store_some(activate(d, activation_, value), y + i, count);
        });
      }
    });
  }

  const program::Vertex& v_;
  const FieldView& x_;
  const FieldView& w_;
  const FieldView& bias_;
  const FieldView& y_;
  const DenseRowScratch scratch_;
  const Activation activation_;
};

// dX = dY·W, with panels of W transposed on the way.
class PanelInputGradient {
 public:
  explicit PanelInputGradient(const program::Vertex& v)
      : v_(v),
        dy_(v.fields[panel_input_gradient_field::dy]),
        w_(v.fields[panel_input_gradient_field::w]),
        relu_(v.fields[panel_input_gradient_field::relu]),
        dx_(v.fields[panel_input_gradient_field::dx]),
        scratch_(dy_.rows, dy_.cols, true) {}

  void run() const {
    float* scratch = v_.fields[panel_input_gradient_field::scratch].as<float>();
    const uint32_t groups = (dx_.cols + kDenseSumStep - 1) / kDenseSumStep;
    each_batch(dx_.rows, [&](uint32_t begin, uint32_t end) {
      v_.enter(Phase::rearrange);
      copy_passes(dy_, begin, end - begin, scratch + scratch_.rows);
      v_.enter(Phase::compute);
      program::share_work(v_.helpers, groups, scratch, [&](uint32_t i, std::byte* of_thread) {
        group(i * kDenseSumStep, begin, end, scratch + scratch_.rows, reinterpret_cast<float*>(of_thread));
      });
    });
  }

 private:
  // All rows of the batch times some columns of W.
  void group(uint32_t col, uint32_t begin, uint32_t end, const float* rows, float* of_thread) const {
    float* weights = of_thread + scratch_.weights;
    float* sums = of_thread + scratch_.sums;
    const uint32_t cols = std::min(kDenseSumStep, dx_.cols - col);
    const uint32_t passes = dense_passes(dy_.cols);
    for (uint32_t pass = 0; pass < passes; ++pass) {
      const uint32_t term = pass * kDenseDepth, terms = std::min(kDenseDepth, dy_.cols - term);
      transpose_panels(term / kPanelRows, terms, col, cols, weights);
      const MicroTile<float> tile = {.panels = weights,
                                     .panel_step = size_t{kDenseDepth} * kPanelRows,
                                     .factors = rows + size_t{pass} * (end - begin) * kDenseRowStep,
                                     .factor_step = 1,
                                     .depth = terms,
                                     .sums = sums,
                                     .sums_step = kPanelRows,
                                     .adds = pass > 0,
                                     .next = weights};
      run_micro_tiles<kDenseRowStep>(tile, (cols + kPanelRows - 1) / kPanelRows, end - begin,
                                     [&](uint32_t row, uint32_t count) HWY_ATTR {
                                       if (pass + 1 == passes)
                                         finish(col, cols, begin + row, count, sums + row * kDenseSumStep);
                                     });
    }
  }

  // Panels of Wᵀ: kPanelRows columns of W for each of `terms` rows from a panel on.
  void transpose_panels(uint32_t panel, uint32_t terms, uint32_t col, uint32_t cols, float* to) const {
    with_float_type(w_.type, [&]<class T>(T) HWY_ATTR {
      const uint32_t end = panel + (terms + kPanelRows - 1) / kPanelRows;
      for (uint32_t p = panel; p < end; ++p, to += kPanelRows * kPanelRows) {
        const T* values = row_of<const T>(w_, p) + size_t{col} * kPanelRows;
        prefetch_values(
            row_of<const T>(w_, std::min(p + kPanelsAhead, w_.rows - 1)) + size_t{col} * kPanelRows, cols);
        for (uint32_t c = 0; c < cols; c += kPanelRows)
          transpose_values(values + size_t{c} * kPanelRows, std::min(kPanelRows, cols - c),
                           to + size_t{c} * kDenseDepth);
      }
    });
  }

  // Panels are too far apart for hardware prefetchers.
  static constexpr uint32_t kPanelsAhead = 2;
  template <class T>
  static HWY_INLINE void prefetch_values(const T* values, uint32_t cols) {
    constexpr size_t kLineValues = 64 / sizeof(T);
    for (size_t i = 0; i < size_t{cols} * kPanelRows; i += kLineValues) hwy::Prefetch(values + i);
  }

  template <class T>
  static HWY_INLINE void transpose_values(const T* values, uint32_t cols, float* to) {
    const PanelFloats d;
    if constexpr (sizeof(T) == sizeof(float)) {
      transpose(values, kPanelRows, cols, kPanelRows, to, kPanelRows);
    } else {
      HWY_ALIGN float wide[kPanelRows * kPanelRows];
      for (size_t i = 0; i < cols * kPanelRows; i += kPanelLanes)
        hn::Store(load_f32(d, values + i), d, wide + i);
      transpose(wide, kPanelRows, cols, kPanelRows, to, kPanelRows);
    }
  }

  void finish(uint32_t col, uint32_t cols, uint32_t row, uint32_t rows, const float* sums) const {
    with_float_type(dx_.type, [&]<class T>(T) HWY_ATTR {
      if (relu_.empty()) return finish_as<T, float, false>(col, cols, row, rows, sums);
      with_float_type(relu_.type, [&]<class Relu>(Relu)
                                      HWY_ATTR { finish_as<T, Relu, true>(col, cols, row, rows, sums); });
    });
  }

  template <class T, class Relu, bool kHasRelu>
  HWY_INLINE void finish_as(uint32_t col, uint32_t cols, uint32_t row, uint32_t rows,
                            const float* sums) const {
    const PanelFloats d;
    for (uint32_t r = row; r < row + rows; ++r, sums += kDenseSumStep) {
      T* dx = row_of<T>(dx_, r) + col;
      const Relu* relu = kHasRelu ? row_of<const Relu>(relu_, r) + col : nullptr;
      each_vector(cols, [&](size_t i, size_t count) HWY_ATTR {
        auto value = hn::LoadU(d, sums + i);
        if constexpr (kHasRelu)
          value = hn::IfThenZeroElse(hn::Le(load_some(relu + i, count), hn::Zero(d)), value);
        store_some(value, dx + i, count);
      });
    }
  }

  const program::Vertex& v_;
  const FieldView& dy_;
  const FieldView& w_;
  const FieldView& relu_;
  const FieldView& dx_;
  const DenseRowScratch scratch_;
};

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
  // Some panels × some columns.
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
    run_micro_tiles<1>(tile, panels, cols, [&](uint32_t begin, uint32_t count) HWY_ATTR {
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
      run_micro_tiles<1>(tile, panels, count, [](uint32_t, uint32_t) {});
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

  // Rows of dW that a panel holds.
  uint32_t rows_of(uint32_t panel) const { return std::min(kPanelRows, dy_.cols - panel * kPanelRows); }

  // Panels of dY in FP32: kPanelRows columns for each row.
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
