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

// As PanelInputGradient.
class PanelInputGradientBf16 {
 public:
  explicit PanelInputGradientBf16(const program::Vertex& v)
      : v_(v),
        dy_(v.fields[panel_input_gradient_field::dy]),
        w_(v.fields[panel_input_gradient_field::w]),
        dx_(v.fields[panel_input_gradient_field::dx]),
        scratch_(dy_.rows, dy_.cols, dx_.cols),
        finish_(v) {}

  void run() const {
    auto* scratch = v_.fields[panel_input_gradient_field::scratch].as<float>();
    const TileSplit parts{(dx_.cols + kDenseSumStep - 1) / kDenseSumStep, kBf16Groups};
    for (uint32_t begin = 0; begin < dx_.rows; begin += kBf16Batch) {
      const uint32_t count = std::min(kBf16Batch, dx_.rows - begin);
      v_.enter(Phase::rearrange);
      const Bf16Rows rows =
          bf16_rows(dy_, begin, count, reinterpret_cast<base::Bfloat16*>(scratch), scratch_.row_step);
      v_.enter(Phase::compute);
      program::share_work(v_.helpers, parts.tiles(), scratch, [&](uint32_t i, std::byte* at) {
        auto* of_thread = reinterpret_cast<float*>(at);
        const uint32_t first = parts.begin(i);
        const Bf16RowProduct product = {
            .rows = rows,
            .count = count,
            .terms = dy_.cols,
            .groups = parts.begin(i + 1) - first,
            .panels = reinterpret_cast<base::Bfloat16*>(of_thread + scratch_.panels),
            .sums = of_thread + scratch_.sums};
        product.run(Columns{w_, first, dx_.cols},
                    [&](uint32_t group, uint32_t row, uint32_t some, const float* sums) HWY_ATTR {
                      const uint32_t col = (first + group) * kDenseSumStep;
                      finish_(col, std::min(kDenseSumStep, dx_.cols - col), begin + row, some, sums);
                    });
      });
    }
  }

 private:
  // Groups of columns of W from one on; their terms lie in its panels.
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

    // Two panels of W have the terms of a step, as rows of columns.
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
  const InputGradientFinish finish_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET
#endif
