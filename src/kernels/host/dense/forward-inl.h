// The forward product of one slice.
#if defined(TESSERA_DENSE_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_DENSE_FORWARD_INL_H_
#undef TESSERA_DENSE_FORWARD_INL_H_
#else
#define TESSERA_DENSE_FORWARD_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/activation-inl.h"
#include "kernels/common/bf16_product.h"
#include "kernels/host/dense/copy-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// From sums to Y: bias, previous Y, activation, rounding.
class PanelFinish {
 public:
  PanelFinish(const program::Vertex& v, bool adds)
      : bias_(v.fields[panel_forward_field::bias]),
        y_(v.fields[panel_forward_field::y]),
        activation_(static_cast<Activation>(v.params[panel_forward_param::activation])),
        adds_(adds) {}

  // Rows of sums kDenseSumStep apart, of kDensePanels panels.
  void operator()(uint32_t panel, uint32_t row, uint32_t rows, const float* sums) const {
    const PanelFloats d;
    const uint32_t col = panel * kPanelRows, cols = std::min(kDenseSumStep, y_.cols - col);
    const float* bias = bias_.empty() ? nullptr : bias_.as<const float>() + col;
    with_float_type(y_.type, [&]<class T>(T) HWY_ATTR {
      for (uint32_t r = row; r < row + rows; ++r, sums += kDenseSumStep) {
        T* y = row_of<T>(y_, r) + col;
        each_vector(cols, [&](size_t i, size_t count) HWY_ATTR {
          auto value = hn::LoadU(d, sums + i);
          if (bias != nullptr) value = hn::Add(value, load_some(bias + i, count));
          if (adds_) value = hn::Add(value, load_some(y + i, count));
          store_some(activate(d, activation_, value), y + i, count);
        });
      }
    });
  }

  // The same in place of the sums, and by the processor's instructions for BF16, which Y is.
  void by_instructions(uint32_t panel, uint32_t row, uint32_t rows, float* sums) const {
    const PanelFloats d;
    const uint32_t col = panel * kPanelRows, cols = std::min(kDenseSumStep, y_.cols - col);
    const float* bias = bias_.empty() ? nullptr : bias_.as<const float>() + col;
    if (bias != nullptr || adds_ || activation_ != Activation::none)
      for (uint32_t r = 0; r < rows; ++r) {
        float* of_row = sums + r * kDenseSumStep;
        const auto* y = row_of<const base::Bfloat16>(y_, row + r) + col;
        each_vector(cols, [&](size_t i, size_t count) HWY_ATTR {
          auto value = hn::LoadU(d, of_row + i);
          if (bias != nullptr) value = hn::Add(value, load_some(bias + i, count));
          if (adds_) value = hn::Add(value, load_some(y + i, count));
          hn::StoreU(activate(d, activation_, value), d, of_row + i);
        });
      }
    round_to_bf16(sums, kDenseSumStep, rows, cols, row_of<base::Bfloat16>(y_, row) + col, y_.row_stride);
  }

 private:
  const FieldView& bias_;
  const FieldView& y_;
  const Activation activation_;
  const bool adds_;
};

// Y = activation(X·Wᵀ + bias), or that of Y as well.
class PanelForward {
 public:
  PanelForward(const program::Vertex& v, bool adds)
      : v_(v),
        x_(v.fields[panel_forward_field::x]),
        w_(v.fields[panel_forward_field::w]),
        y_(v.fields[panel_forward_field::y]),
        terms_(panel_forward_terms(v)),
        scratch_(y_.rows, terms_, false),
        finish_(v, adds) {}

  void run() const {
    float* scratch = v_.fields[panel_forward_field::scratch].as<float>();
    const uint32_t groups = (w_.rows + kDensePanels - 1) / kDensePanels;
    each_batch(y_.rows, [&](uint32_t begin, uint32_t end) {
      v_.enter(Phase::rearrange);
      copy_rows_of_x(begin, end - begin, scratch + scratch_.rows);
      v_.enter(Phase::compute);
      program::share_work(v_.helpers, groups, scratch, [&](uint32_t i, std::byte* of_thread) {
        group(i * kDensePanels, begin, end, scratch + scratch_.rows,
              reinterpret_cast<float*>(of_thread) + scratch_.sums);
      });
    });
  }

 private:
  void copy_rows_of_x(uint32_t row, uint32_t rows, float* to) const {
    const FieldView& window = v_.fields[panel_forward_field::window];
    if (window.empty()) return copy_passes(x_, row, rows, to);
    const auto first = static_cast<uint32_t>(v_.params[panel_forward_param::first_row]);
    copy_seen_passes(x_, window_of(window), first + row, rows, to);
  }

  // All rows of the batch times some panels.
  void group(uint32_t panel, uint32_t begin, uint32_t end, const float* rows, float* sums) const {
    const uint32_t panels = std::min(kDensePanels, w_.rows - panel);
    const uint32_t next = panel + kDensePanels < w_.rows ? panel + kDensePanels : panel;
    const uint32_t passes = dense_passes(terms_);
    with_float_type(w_.type, [&]<class T>(T) HWY_ATTR {
      for (uint32_t pass = 0; pass < passes; ++pass) {
        const uint32_t col = pass * kDenseDepth;
        const size_t value = size_t{col} * kPanelRows;
        const MicroTile<T> tile = {.panels = row_of<const T>(w_, panel) + value,
                                   .panel_step = static_cast<size_t>(w_.row_stride),
                                   .factors = rows + size_t{pass} * (end - begin) * kDenseRowStep,
                                   .factor_step = 1,
                                   .depth = std::min(kDenseDepth, terms_ - col),
                                   .sums = sums,
                                   .sums_step = kPanelRows,
                                   .adds = pass > 0,
                                   .next = row_of<const T>(w_, next) + value};
        run_micro_tiles<kAcrossRows>(tile, panels, end - begin, [&](uint32_t row, uint32_t count) HWY_ATTR {
          if (pass + 1 == passes) finish_(panel, begin + row, count, sums + row * kDenseSumStep);
        });
      }
    });
  }

  const program::Vertex& v_;
  const FieldView& x_;
  const FieldView& w_;
  const FieldView& y_;
  const uint32_t terms_;
  const DenseRowScratch scratch_;
  const PanelFinish finish_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
