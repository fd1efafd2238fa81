// The input gradient of one slice in BF16.
#if defined(TESSERA_DENSE_BF16_INPUT_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_DENSE_BF16_INPUT_GRADIENT_INL_H_
#undef TESSERA_DENSE_BF16_INPUT_GRADIENT_INL_H_
#else
#define TESSERA_DENSE_BF16_INPUT_GRADIENT_INL_H_
#endif

#include "kernels/host/dense/bf16_rows-inl.h"
#include "kernels/host/dense/input_gradient-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// PanelInputGradient in BF16.
class PanelInputGradientBf16 {
 public:
  PanelInputGradientBf16(const program::Vertex& v, bool adds)
      : v_(v),
        dy_(v.fields[panel_input_gradient_field::dy]),
        w_(v.fields[panel_input_gradient_field::w]),
        dx_(v.fields[panel_input_gradient_field::dx]),
        scratch_(dy_.rows, dy_.cols, dx_.cols),
        finish_(epilogue_of_input_gradient(v, adds)) {}

  void run() const {
    const Bf16Batches batches{dx_.rows, dy_.cols, (dx_.cols + kDenseSumStep - 1) / kDenseSumStep};
    batches.run(
        v_, v_.fields[panel_input_gradient_field::scratch].as<float>(), scratch_,
        [&](uint32_t row, uint32_t rows, base::Bfloat16* to) {
          return bf16_rows(dy_, row, rows, to, scratch_.row_step);
        },
        [&](uint32_t first) {
          return Columns{w_, first, dx_.cols};
        },
        [&](uint32_t group, uint32_t row, uint32_t rows, float* sums) HWY_ATTR {
          const uint32_t col = group * kDenseSumStep;
          finish_(col, std::min(kDenseSumStep, dx_.cols - col), row, rows, sums);
        });
  }

 private:
  // Groups of columns of W, from a given column on, with terms across W's panels.
  struct Columns {
    const FieldView& w;
    uint32_t first;
    uint32_t end;  // columns

    uint32_t column(uint32_t group) const { return (first + group) * kDenseSumStep; }
    uint32_t panels_of(uint32_t group) const { return column(group) + kBf16Columns < end ? 2 : 1; }
    bool pack_beside(uint32_t, uint32_t, Bf16Packing&) const { return false; }

    void pack(uint32_t group, uint32_t term, uint32_t terms, base::Bfloat16* to) const {
      for (uint32_t t = 0; t < std::max(terms, 1U); t += kBf16Step)
        for (uint32_t p = 0; p < panels_of(group); ++p, to += kBf16StepValues) {
          const uint32_t col = column(group) + p * kBf16Columns;
          pack_step((term + t) / kPanelRows, col, std::min(kBf16Columns, end - col), to);
        }
    }

    // Copies a step's terms, which are the rows of two panels of W.
    void pack_step(uint32_t panel, uint32_t col, uint32_t cols, base::Bfloat16* to) const {
      static_assert(kLanes == kBf16Columns && kBf16Step == 2 * kPanelRows);
      const Floats d;
      const hn::Half<Floats> half;
      const auto pairs_at = [&](uint32_t of_panel, size_t i) HWY_ATTR {
        if (of_panel >= w.rows || i >= cols) return hn::Zero(half);
        const auto* at = row_of<const base::Bfloat16>(w, of_panel) + (col + i) * kPanelRows;
        return hn::LoadU(half, reinterpret_cast<const float*>(at));
      };
      transpose_square([&](size_t i)
                           HWY_ATTR { return hn::Combine(d, pairs_at(panel + 1, i), pairs_at(panel, i)); },
                       [&](size_t i, hn::Vec<Floats> v)
                           HWY_ATTR { hn::StoreU(v, d, reinterpret_cast<float*>(to + i * kBf16Step)); });
    }
  };

  const program::Vertex& v_;
  const FieldView& dy_;
  const FieldView& w_;
  const FieldView& dx_;
  const Bf16RowScratch scratch_;
  const RowFinish finish_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET
#endif
