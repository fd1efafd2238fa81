// Copying matrices that a program computes into the panels that the micro-kernel of dense products reads.
#if defined(TESSERA_PRODUCT_LINES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_PRODUCT_LINES_INL_H_
#undef TESSERA_PRODUCT_LINES_INL_H_
#else
#define TESSERA_PRODUCT_LINES_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/element.h"
#include "kernels/common/panels-inl.h"
#include "kernels/host/dense/copy-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using program::FieldView;

// The factor of a product as lines of terms: sums are over the terms. Lines or terms are contiguous.
struct Lines {
  const std::byte* data = nullptr;
  Type type = Type::f32;
  int64_t line_step = 0;  // elements
  int64_t term_step = 0;
  uint32_t lines = 0;
  uint32_t terms = 0;

  Lines part(uint32_t line, uint32_t count, uint32_t term, uint32_t depth) const {
    Lines part = *this;
    part.data += (line * line_step + term * term_step) * static_cast<int64_t>(size_of(type));
    part.lines = count;
    part.terms = depth;
    return part;
  }
};

// Rows [row, row + rows) × columns [col, col + cols) with a line per row and a term per column; or with a
// line per column.
inline Lines row_lines(const FieldView& field, uint32_t row, uint32_t rows, uint32_t col, uint32_t cols) {
  return {address_of(field, row, col), field.type, field.row_stride, field.col_stride, rows, cols};
}
inline Lines col_lines(const FieldView& field, uint32_t row, uint32_t rows, uint32_t col, uint32_t cols) {
  return {address_of(field, row, col), field.type, field.col_stride, field.row_stride, cols, rows};
}

template <class T>
void copy_contiguous_lines(const Lines& from, float* to, size_t to_step) {
  const T* term = reinterpret_cast<const T*>(from.data);
  for (uint32_t t = 0; t < from.terms; ++t, term += from.term_step, to += to_step)
    each_vector(from.lines, [&](size_t i, size_t count)
                                HWY_ATTR { store_some(load_some(term + i, count), to + i, count); });
}

inline void copy_contiguous_terms(const float* from, size_t line_step, const Lines& lines, float* to,
                                  size_t to_step) {
  transpose(from, line_step, lines.lines, lines.terms, to, to_step);
}

// Copies elements, widened to FP32, a square at a time.
template <class T>
void copy_contiguous_terms(const T* from, size_t line_step, const Lines& lines, float* to, size_t to_step) {
  constexpr uint32_t kSide = 32;
  HWY_ALIGN float square[kSide * kSide];
  for (uint32_t line = 0; line < lines.lines; line += kSide)
    for (uint32_t term = 0; term < lines.terms; term += kSide) {
      const uint32_t rows = std::min(kSide, lines.lines - line), cols = std::min(kSide, lines.terms - term);
      for (uint32_t r = 0; r < rows; ++r) {
        const T* row = from + (line + r) * line_step + term;
        each_vector(cols, [&](size_t i, size_t count) HWY_ATTR {
          store_some(load_some(row + i, count), square + r * kSide + i, count);
        });
      }
      transpose(square, kSide, rows, cols, to + term * to_step + line, to_step);
    }
}

// to[t · to_step + i] = term t of line i, in FP32, with zeros for lines up to whole panels.
inline void copy_terms(const Lines& from, float* to, size_t to_step) {
  with_float_type(from.type, [&]<class T>(T) HWY_ATTR {
    if (from.term_step == 1)
      copy_contiguous_terms(reinterpret_cast<const T*>(from.data), static_cast<size_t>(from.line_step), from,
                            to, to_step);
    else
      copy_contiguous_lines<T>(from, to, to_step);
  });
  if (const uint32_t padded = round_up(from.lines, kPanelRows); padded != from.lines)
    for (uint32_t t = 0; t < from.terms; ++t)
      std::fill(to + t * to_step + from.lines, to + t * to_step + padded, 0.0F);
}

// Copies terms to panels: to[panel][t][kPanelRows].
inline void copy_panels(const Lines& from, float* to) {
  for (uint32_t line = 0; line < from.lines; line += kPanelRows, to += size_t{from.terms} * kPanelRows)
    copy_terms(from.part(line, std::min(kPanelRows, from.lines - line), 0, from.terms), to, kPanelRows);
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
