// Moving operands of dense products to and from FP32.
#if defined(TESSERA_DENSE_COPY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_DENSE_COPY_INL_H_
#undef TESSERA_DENSE_COPY_INL_H_
#else
#define TESSERA_DENSE_COPY_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

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

// Copies rows [row, row + rows) × columns [col, col + cols) as FP32.
inline void copy_rows(const FieldView& from, uint32_t row, uint32_t rows, uint32_t col, uint32_t cols,
                      float* to, size_t to_step) {
  with_float_type(from.type, [&]<class T>(T) HWY_ATTR {
    const PanelFloats d;
    for (uint32_t r = 0; r < rows; ++r, to += to_step) {
      const T* source = row_of<const T>(from, row + r) + col;
      each_vector(cols, [&](size_t i, size_t count)
                            HWY_ATTR { store_some(load_some(source + i, count), to + i, count); });
    }
  });
}

// Passes over the copied rows of a batch, with zeros up to whole panels.
inline void copy_passes(const FieldView& from, uint32_t row, uint32_t rows, float* to) {
  for (uint32_t pass = 0; pass < dense_passes(from.cols); ++pass, to += size_t{rows} * kDenseRowStep) {
    const uint32_t col = pass * kDenseDepth, cols = std::min(kDenseDepth, from.cols - col);
    copy_rows(from, row, rows, col, cols, to, kDenseRowStep);
    for (uint32_t r = 0; r < rows; ++r)
      std::fill(to + r * kDenseRowStep + cols, to + r * kDenseRowStep + round_up(cols, kPanelRows), 0.0F);
  }
}

// Calls work(begin, end) for the batch in parts that scratch has room for.
template <class Work>
void each_batch(uint32_t rows, const Work& work) {
  for (uint32_t begin = 0; begin < rows; begin += kDenseBatch)
    work(begin, std::min(begin + kDenseBatch, rows));
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
