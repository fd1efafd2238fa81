// Conversion of operands of dense products to and from FP32.
#if defined(TESSERA_DENSE_COPY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_DENSE_COPY_INL_H_
#undef TESSERA_DENSE_COPY_INL_H_
#else
#define TESSERA_DENSE_COPY_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/common/panels-inl.h"
#include "kernels/host/dense/micro_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using program::FieldView;
using program::Phase;

template <class T>
HWY_INLINE T* row_of(const FieldView& field, uint32_t row) {
  return field.as<T>() + row * field.row_stride;
}

// Calls visit(vector, i, count) for each vector of `count` of the elements [0, total).
template <class Visit>
HWY_INLINE void each_vector(size_t total, const Visit& visit) {
  for (size_t i = 0; i < total; i += kPanelLanes) visit(i, std::min(kPanelLanes, total - i));
}

template <class T>
HWY_INLINE hn::Vec<PanelFloats> load_some(const T* from, size_t count) {
  const PanelFloats d;
  return count == kPanelLanes ? load_f32(d, from) : load_first(d, from, count);
}

template <class T>
HWY_INLINE void store_some(hn::Vec<PanelFloats> value, T* to, size_t count) {
  const PanelFloats d;
  count == kPanelLanes ? store_rounded(d, value, to) : store_first(d, value, to, count);
}

// Element (row, col) of an FP32 matrix with any strides.
inline float* element_of(const FieldView& field, uint32_t row, uint32_t col) {
  return field.as<float>() + row * field.row_stride + col * field.col_stride;
}

// Copies rows of an FP32 matrix whose rows are not contiguous.
inline void copy_strided_rows(const FieldView& from, uint32_t row, uint32_t rows, uint32_t col, uint32_t cols,
                              float* to, size_t to_step) {
  constexpr uint32_t kRowsAtOnce = 64;  // whose pages the TLB holds
  for (uint32_t some; rows > 0; rows -= some, row += some, to += some * to_step) {
    some = std::min(rows, kRowsAtOnce);
    if (from.row_stride == 1) {
      transpose(element_of(from, row, col), static_cast<size_t>(from.col_stride), cols, some, to, to_step);
      continue;
    }
    for (uint32_t r = 0; r < some; ++r)
      for (uint32_t c = 0; c < cols; ++c) to[r * to_step + c] = *element_of(from, row + r, col + c);
  }
}

// Stores rows in an FP32 matrix whose rows are not contiguous.
inline void store_rows(const float* from, size_t from_step, const FieldView& to, uint32_t row, uint32_t rows,
                       uint32_t col, uint32_t cols) {
  if (to.row_stride == 1)
    return transpose(from, from_step, rows, cols, element_of(to, row, col),
                     static_cast<size_t>(to.col_stride));
  for (uint32_t r = 0; r < rows; ++r)
    for (uint32_t c = 0; c < cols; ++c) *element_of(to, row + r, col + c) = from[r * from_step + c];
}

// Copies at least a vector of elements, and at most two.
template <class D>
HWY_INLINE void copy_ends(D d, const float* from, uint32_t count, float* to) {
  const size_t last = count - hn::MaxLanes(d);
  const auto begin = hn::LoadU(d, from), end = hn::LoadU(d, from + last);
  hn::StoreU(begin, d, to);
  hn::StoreU(end, d, to + last);
}

// Copies fewer elements than a vector has.
HWY_INLINE void copy_few(const float* from, uint32_t count, float* to) {
  const hn::CappedTag<float, 8> eight;
  const hn::CappedTag<float, 4> four;
  if (count >= hn::MaxLanes(eight)) return copy_ends(eight, from, count, to);
  if (count >= hn::MaxLanes(four)) return copy_ends(four, from, count, to);
  for (uint32_t i = 0; i < count; ++i) to[i] = from[i];
}

// Copies rows [row, row + rows) × columns [col, col + cols) as FP32.
inline void copy_rows(const FieldView& from, uint32_t row, uint32_t rows, uint32_t col, uint32_t cols,
                      float* to, size_t to_step) {
  if (!has_contiguous_rows(from)) return copy_strided_rows(from, row, rows, col, cols, to, to_step);
  with_float_type(from.type, [&]<class T>(T) HWY_ATTR {
    for (uint32_t r = 0; r < rows; ++r, to += to_step) {
      const T* source = row_of<const T>(from, row + r) + col;
      if constexpr (std::is_same_v<T, float>)
        if (cols < kPanelLanes) {
          copy_few(source, cols, to);
          continue;
        }
      each_vector(cols, [&](size_t i, size_t count)
                            HWY_ATTR { store_some(load_some(source + i, count), to + i, count); });
    }
  });
}

// Copies rows of a batch by passes, with zeros up to whole panels.
inline void copy_passes(const FieldView& from, uint32_t row, uint32_t rows, float* to) {
  for (uint32_t pass = 0; pass < dense_passes(from.cols); ++pass, to += size_t{rows} * kDenseRowStep) {
    const uint32_t col = pass * kDenseDepth, cols = std::min(kDenseDepth, from.cols - col);
    copy_rows(from, row, rows, col, cols, to, kDenseRowStep);
    for (uint32_t r = 0; r < rows; ++r)
      std::fill(to + r * kDenseRowStep + cols, to + r * kDenseRowStep + round_up(cols, kPanelRows), 0.0F);
  }
}

// Copies elements of a row, converted to FP32 or unchanged.
template <class T>
HWY_INLINE void copy_elements(const T* from, uint32_t count, float* to) {
  each_vector(count,
              [&](size_t i, size_t some) HWY_ATTR { store_some(load_some(from + i, some), to + i, some); });
}
inline void copy_elements(const base::Bfloat16* from, uint32_t count, base::Bfloat16* to) {
  std::copy_n(from, count, to);
}

// Copies elements [col, col + cols) of the elements under the taps at a position.
template <class T, class To>
HWY_INLINE void copy_seen(const FieldView& images, const Window& w, uint32_t position, uint32_t col,
                          uint32_t cols, To* to) {
  const uint32_t channels = images.cols, end = col + cols;
  const uint32_t out_row = position / w.out_width % w.out_height, out_col = position % w.out_width;
  const int64_t image = position / w.out_positions();
  const Span inside = w.tap_cols(out_col);
  for (uint32_t next; col < end; to += next - col, col = next) {
    const uint32_t tap = col / channels, tap_col = tap % w.kernel_width;
    const int64_t row = w.row(out_row, tap / w.kernel_width);
    // Neighbouring taps within the image, or beyond it.
    const bool is_inside = w.has_row(row) && tap_col >= inside.begin && tap_col < inside.end;
    const uint32_t joined = is_inside && (w.dilation_across > 1 || images.row_stride != channels)
                                ? tap_col + 1
                            : is_inside                                ? inside.end
                            : w.has_row(row) && tap_col < inside.begin ? inside.begin
                                                                       : w.kernel_width;
    next = std::min(end, (tap - tap_col + joined) * channels);
    if (!is_inside) {
      std::fill_n(to, next - col, To{});
      continue;
    }
    const int64_t place = (image * w.height + row) * w.width + w.col(out_col, tap_col);
    const T* from = images.as<const T>() + place * images.row_stride + (col - tap * channels);
    copy_elements(from, next - col, to);
  }
}

// Calls work(begin, end) for parts of the batch that fit in scratch.
template <class Work>
void each_batch(uint32_t rows, const Work& work) {
  for (uint32_t begin = 0; begin < rows; begin += kDenseBatch)
    work(begin, std::min(begin + kDenseBatch, rows));
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
