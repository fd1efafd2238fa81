// The forward product of one slice in BF16.
#if defined(TESSERA_DENSE_BF16_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_DENSE_BF16_FORWARD_INL_H_
#undef TESSERA_DENSE_BF16_FORWARD_INL_H_
#else
#define TESSERA_DENSE_BF16_FORWARD_INL_H_
#endif

#include "kernels/host/dense/bf16_rows-inl.h"
#include "kernels/host/dense/forward-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

// PanelForward in BF16.
class PanelForwardBf16 {
 public:
  PanelForwardBf16(const program::Vertex& v, bool adds)
      : v_(v),
        x_(v.fields[panel_forward_field::x]),
        w_(v.fields[panel_forward_field::w]),
        y_(v.fields[panel_forward_field::y]),
        terms_(panel_forward_terms(v)),
        scratch_(y_.rows, terms_, y_.cols),
        finish_(epilogue_of_forward(v, adds)) {}

  void run() const {
    const Bf16Batches batches{y_.rows, terms_, (w_.rows + kDensePanels - 1) / kDensePanels};
    batches.run(
        v_, v_.fields[panel_forward_field::scratch].as<float>(), scratch_,
        [&](uint32_t row, uint32_t rows, base::Bfloat16* to) { return rows_of_x(row, rows, to); },
        [&](uint32_t first) {
          return Weight{w_, first};
        },
        [&](uint32_t group, uint32_t row, uint32_t rows, float* sums) HWY_ATTR {
          const uint32_t col = group * kDenseSumStep, cols = std::min(kDenseSumStep, y_.cols - col);
          if (y_.type == Type::bf16)
            finish_.by_instructions(col, cols, row, rows, sums);
          else
            finish_(col, cols, row, rows, sums);
        });
  }

 private:
  // The weight as groups of panels, from a given panel on.
  struct Weight {
    const FieldView& w;
    uint32_t first;

    uint32_t panel(uint32_t group) const { return (first + group) * kDensePanels; }
    uint32_t panels_of(uint32_t group) const { return std::min(kDensePanels, w.rows - panel(group)); }
    const base::Bfloat16* at(uint32_t panel, uint32_t term) const {
      return row_of<const base::Bfloat16>(w, panel) + size_t{term} * kPanelRows;
    }
    void pack(uint32_t group, uint32_t term, uint32_t terms, base::Bfloat16* to) const {
      const uint32_t panels = panels_of(group);
      for (uint32_t p = 0; p < panels; ++p)
        pack_bf16_pairs(at(panel(group) + p, term), kPanelRows, terms, kPanelRows, to + p * kBf16StepValues,
                        panels * kBf16StepValues);
    }
    bool pack_beside(uint32_t group, uint32_t term, Bf16Packing& packing) const {
      for (uint32_t p = 0; p < panels_of(group); ++p) packing.from[p] = at(panel(group) + p, term);
      return true;
    }
  };

  Bf16Rows rows_of_x(uint32_t row, uint32_t rows, base::Bfloat16* to) const {
    const FieldView& seen = v_.fields[panel_forward_field::window];
    if (seen.empty()) return bf16_rows(x_, row, rows, to, scratch_.row_step);
    const auto first = row + static_cast<uint32_t>(v_.params[panel_forward_param::first_row]);
    const Window window = window_of(seen);
    return copy_bf16_rows(rows, terms_, to, scratch_.row_step, [&](uint32_t r, base::Bfloat16* at) {
      copy_seen<base::Bfloat16>(x_, window, first + r, 0, terms_, at);
    });
  }

  const program::Vertex& v_;
  const FieldView& x_;
  const FieldView& w_;
  const FieldView& y_;
  const uint32_t terms_;
  const Bf16RowScratch scratch_;
  const RowFinish finish_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET
#endif
