// The input gradient of one slice.
#if defined(TESSERA_DENSE_INPUT_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_DENSE_INPUT_GRADIENT_INL_H_
#undef TESSERA_DENSE_INPUT_GRADIENT_INL_H_
#else
#define TESSERA_DENSE_INPUT_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/host/dense/copy-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
