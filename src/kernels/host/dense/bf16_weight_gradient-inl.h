// The weight gradient of one slice in BF16.
#if defined(TESSERA_DENSE_BF16_WEIGHT_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_DENSE_BF16_WEIGHT_GRADIENT_INL_H_
#undef TESSERA_DENSE_BF16_WEIGHT_GRADIENT_INL_H_
#else
#define TESSERA_DENSE_BF16_WEIGHT_GRADIENT_INL_H_
#endif

#include "kernels/host/dense/bf16_rows-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// PanelWeightGradient in BF16: dWᵀ = Xᵀ·dY, whose rows are contiguous in panels.
class PanelWeightGradientBf16 {
 public:
  PanelWeightGradientBf16(const program::Vertex& v, bool adds)
      : v_(v),
        dy_(v.fields[panel_weight_gradient_field::dy]),
        x_(v.fields[panel_weight_gradient_field::x]),
        dw_(v.fields[panel_weight_gradient_field::dw]),
        scratch_(x_.cols, dy_.rows, dw_.rows * kPanelRows),
        scalars_(v.fields[panel_weight_gradient_field::scalars], adds) {}

  void run() const {
    const Bf16Batches batches{x_.cols, dy_.rows, (dw_.rows + kDensePanels - 1) / kDensePanels};
    batches.run(
        v_, v_.fields[panel_weight_gradient_field::scratch].as<float>(), scratch_,
        [&](uint32_t col, uint32_t cols, base::Bfloat16* to) { return transpose_columns(col, cols, to); },
        [&](uint32_t first) {
          return Features{dy_, first, dw_.rows};
        },
        [&](uint32_t group, uint32_t col, uint32_t cols, const float* sums)
            HWY_ATTR { finish(group * kDensePanels, col, cols, sums); });
  }

 private:
  // Groups of panels of dY, from a given panel on.
  struct Features {
    const FieldView& dy;
    uint32_t first;
    uint32_t end;  // panels

    uint32_t panel(uint32_t group) const { return (first + group) * kDensePanels; }
    uint32_t panels_of(uint32_t group) const { return std::min(kDensePanels, end - panel(group)); }
    bool pack_beside(uint32_t, uint32_t, Bf16Packing&) const { return false; }
    void pack(uint32_t group, uint32_t term, uint32_t terms, base::Bfloat16* to) const {
      const uint32_t panels = panels_of(group);
      for (uint32_t p = 0; p < panels; ++p) {
        const uint32_t col = (panel(group) + p) * kPanelRows;
        pack_bf16_pairs(row_of<const base::Bfloat16>(dy, term) + col, static_cast<size_t>(dy.row_stride),
                        terms, std::min(kPanelRows, dy.cols - col), to + p * kBf16StepValues,
                        panels * kBf16StepValues);
      }
    }
  };

  // Copies columns of X as rows, with zeros up to whole steps.
  Bf16Rows transpose_columns(uint32_t first, uint32_t count, base::Bfloat16* to) const {
    for (uint32_t c = 0; c < count; c += kBf16Columns)
      for (uint32_t r = 0; r < std::max(x_.rows, 1U); r += kBf16Step)
        transpose_bf16_step(x_, r, x_.rows, first + c, std::min(kBf16Columns, count - c),
                            to + c * scratch_.row_step + r, scratch_.row_step);
    return {to, scratch_.row_step};
  }

  // Stores the sums of panels for some columns of dW.
  void finish(uint32_t panel, uint32_t col, uint32_t cols, const float* sums) const {
    const Floats d;
    const uint32_t panels = std::min(kDensePanels, dw_.rows - panel);
    with_float_type(dw_.type, [&]<class T>(T) HWY_ATTR {
      for (uint32_t p = 0; p < panels; ++p) {
        const uint32_t rows = std::min(kPanelRows, dy_.cols - (panel + p) * kPanelRows);
        const auto is_row = hn::FirstN(d, rows);
        T* dw = row_of<T>(dw_, panel + p) + size_t{col} * kPanelRows;
        for (uint32_t c = 0; c < cols; ++c, dw += kPanelRows) {
          auto value = hn::LoadU(d, sums + c * kDenseSumStep + p * kPanelRows);
          if (scalars_.alpha != 1) value = hn::Mul(hn::Set(d, scalars_.alpha), value);
          if (scalars_.beta != 0) value = hn::MulAdd(hn::Set(d, scalars_.beta), load_f32(d, dw), value);
          store_rounded(d, hn::IfThenElseZero(is_row, value), dw);
        }
      }
    });
  }

  const program::Vertex& v_;
  const FieldView& dy_;
  const FieldView& x_;
  const FieldView& dw_;
  const Bf16RowScratch scratch_;
  const DenseScalars scalars_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET
#endif
