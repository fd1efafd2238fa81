// Products of BF16 whose results are rows of a batch, by the processor's BF16 instructions.
#if defined(TESSERA_DENSE_BF16_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_DENSE_BF16_ROWS_INL_H_
#undef TESSERA_DENSE_BF16_ROWS_INL_H_
#else
#define TESSERA_DENSE_BF16_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/bf16_product.h"
#include "kernels/host/dense/copy-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of a matrix as a factor of BF16 products, in whole steps of terms.
struct Bf16Rows {
  const base::Bfloat16* at;
  size_t step;
};

// Copies rows with copy(row, to), and zeros up to whole steps.
template <class Copy>
HWY_INLINE Bf16Rows copy_bf16_rows(uint32_t rows, uint32_t terms, base::Bfloat16* to, size_t step,
                                   const Copy& copy) {
  const Bf16Rows copied{to, step};
  for (uint32_t r = 0; r < rows; ++r, to += step) {
    copy(r, to);
    std::fill(to + terms, to + round_up(std::max(terms, 1U), kBf16Step), base::Bfloat16{});
  }
  return copied;
}

inline Bf16Rows bf16_rows(const FieldView& field, uint32_t row, uint32_t rows, base::Bfloat16* scratch,
                          size_t step) {
  if (can_multiply_in_place(field))
    return {row_of<const base::Bfloat16>(field, row), static_cast<size_t>(field.row_stride)};
  return copy_bf16_rows(rows, field.cols, scratch, step, [&](uint32_t r, base::Bfloat16* to) {
    std::copy_n(row_of<const base::Bfloat16>(field, row + r), field.cols, to);
  });
}

// Transposes up to kBf16Step rows [row, end) of some columns to a line per column, `to_step` apart, with
// zeros for missing rows. Pairs of rows are elements of 32 bits.
inline void transpose_bf16_step(const FieldView& from, uint32_t row, uint32_t end, uint32_t col,
                                uint32_t cols, base::Bfloat16* to, size_t to_step) {
  static_assert(kLanes == kBf16Columns);
  const Floats d;
  const hn::RebindToUnsigned<Floats> bits;
  const hn::Rebind<uint16_t, Floats> bits16;
  const auto row_at = [&](uint32_t r) HWY_ATTR {
    if (r >= end) return hn::Zero(bits);
    const auto* at = reinterpret_cast<const uint16_t*>(row_of<const base::Bfloat16>(from, r) + col);
    if (cols == kBf16Columns) return hn::PromoteTo(bits, hn::LoadU(bits16, at));
    uint16_t part[kBf16Columns] = {};
    std::copy_n(at, cols, part);
    return hn::PromoteTo(bits, hn::LoadU(bits16, part));
  };
  transpose_square(
      [&](size_t i) HWY_ATTR {
        const auto r = row + 2 * static_cast<uint32_t>(i);
        return hn::BitCast(d, hn::Or(row_at(r), hn::ShiftLeft<16>(row_at(r + 1))));
      },
      [&](size_t i, hn::Vec<Floats> v) HWY_ATTR {
        if (i < cols) hn::StoreU(v, d, reinterpret_cast<float*>(to + i * to_step));
      });
}

// Multiplies rows by groups of panels of B; group `group` of a weight has weight.panels_of(group) panels.
// weight.pack(group, first term, terms, to) prepacks the panels of a pass; or weight.pack_beside() says how
// to, if that can be done while multiplying. finish(group, row, rows, sums) takes the sums.
struct Bf16RowProduct {
  Bf16Rows rows;
  uint32_t count;  // number of rows
  uint32_t terms;
  uint32_t groups;
  base::Bfloat16* panels;
  float* sums;

  template <class Weight, class Finish>
  void run(const Weight& weight, const Finish& finish) const {
    const TileSplit passes = bf16_passes(terms);
    Bf16Product product;
    for (uint32_t pass = 0; pass < passes.tiles(); ++pass) {
      const uint32_t begin = passes.begin(pass), steps = passes.begin(pass + 1) - begin;
      const uint32_t term = begin * kBf16Step, depth = std::min(terms - term, steps * kBf16Step);
      const size_t group_step = size_t{steps} * kBf16StepValues * kDensePanels;
      bool is_packed = false;  // whether the next group is prepacked
      // Sums that are finished while the next sums are computed.
      struct {
        uint32_t group = 0, row = 0, rows = 0;
        float* sums = nullptr;
      } last;
      const auto finish_last = [&] {
        if (last.sums != nullptr) finish(last.group, last.row, last.rows, last.sums);
      };
      for (uint32_t row = 0; row < count; row += kBf16Rows) {
        const uint32_t some = std::min(kBf16Rows, count - row);
        for (uint32_t g = 0; g < groups; ++g) {
          base::Bfloat16* const b = panels + g * group_step;
          if (row == 0 && !is_packed) weight.pack(g, term, depth, b);
          Bf16Packing next;
          is_packed = row == 0 && g + 1 < groups && depth == steps * kBf16Step &&
                      weight.panels_of(g) == weight.panels_of(g + 1) && weight.pack_beside(g + 1, term, next);
          next.to = b + group_step;
          float* const to = sums + (size_t{g} * count + row) * kDenseSumStep;
          product.run({.a = rows.at + row * rows.step + term,
                       .a_step = rows.step,
                       .rows = some,
                       .b = b,
                       .panels = weight.panels_of(g),
                       .steps = steps,
                       .sums = to,
                       .sums_step = kDenseSumStep,
                       .sums_panel = kPanelRows,
                       .adds = pass > 0},
                      is_packed ? &next : nullptr);
          if (pass + 1 < passes.tiles()) continue;
          finish_last();
          last = {g, row, some, to};
        }
      }
      finish_last();
    }
  }
};

// Multiplies a batch in parts of `count` rows, rows_of(first, rows, to). Threads share the `groups` groups;
// weight_of(group) has the groups from `group` on.
struct Bf16Batches {
  uint32_t count;
  uint32_t terms;
  uint32_t groups;

  template <class RowsOf, class WeightOf, class Finish>
  void run(const program::Vertex& v, float* scratch, const Bf16RowScratch& at, const RowsOf& rows_of,
           const WeightOf& weight_of, const Finish& finish) const {
    const TileSplit parts{groups, kBf16Groups};
    for (uint32_t begin = 0; begin < count; begin += kBf16Batch) {
      const uint32_t some = std::min(kBf16Batch, count - begin);
      v.enter(Phase::rearrange);
      const Bf16Rows rows = rows_of(begin, some, reinterpret_cast<base::Bfloat16*>(scratch));
      v.enter(Phase::compute);
      program::share_work(v.helpers, parts.tiles(), scratch, [&](uint32_t i, std::byte* bytes) {
        auto* of_thread = reinterpret_cast<float*>(bytes);
        const uint32_t first = parts.begin(i);
        const Bf16RowProduct product = {.rows = rows,
                                        .count = some,
                                        .terms = terms,
                                        .groups = parts.begin(i + 1) - first,
                                        .panels = reinterpret_cast<base::Bfloat16*>(of_thread + at.panels),
                                        .sums = of_thread + at.sums};
        product.run(weight_of(first), [&](uint32_t group, uint32_t row, uint32_t of_group, float* sums) {
          finish(first + group, begin + row, of_group, sums);
        });
      });
    }
  }
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET
#endif
