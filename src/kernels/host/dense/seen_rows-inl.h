// Copying the rows of images under a window.
#if defined(TESSERA_DENSE_SEEN_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_DENSE_SEEN_ROWS_INL_H_
#undef TESSERA_DENSE_SEEN_ROWS_INL_H_
#else
#define TESSERA_DENSE_SEEN_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/host/dense/copy-inl.h"
#include "kernels/host/dense/seen_rows.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Copies columns of a row of an image from `left` on, which may be before the first, with zeros for columns
// beyond the image.
template <class T>
HWY_INLINE void copy_seen_row(const FieldView& images, const SeenRows& seen, size_t row, int64_t left,
                              float* to) {
  const Window& w = seen.window();
  const int64_t skip = seen.skip_across(), width = seen.width();
  const auto first_from = [=](int64_t col) {
    return std::clamp<int64_t>(col <= left ? 0 : (col - left + skip - 1) / skip, 0, width);
  };
  const int64_t begin = first_from(0), end = first_from(w.width);
  const size_t step = seen.step(), channels = seen.channels();
  std::fill_n(to, begin * step, 0.0F);
  std::fill(to + end * step, to + width * step, 0.0F);
  if (begin >= end) return;
  const T* from =
      images.as<const T>() + (static_cast<int64_t>(row) + left + begin * skip) * images.row_stride;
  const auto from_step = static_cast<size_t>(images.row_stride * skip);
  if (step == channels && from_step == channels)
    return copy_elements(from, static_cast<uint32_t>((end - begin) * channels), to + begin * step);
  for (int64_t i = begin; i < end; ++i, from += from_step)
    copy_elements(from, seen.channels(), to + i * step);
}

inline void copy_seen_rows(const FieldView& images, const SeenRows& seen, const SeenBatch& batch, float* to) {
  const Window& w = seen.window();
  const int64_t left = int64_t{seen.first_col(batch)} * w.stride_across - w.left;
  const uint32_t end = (batch.end - 1) / w.out_width + 1;
  with_float_type(images.type, [&]<class T>(T) HWY_ATTR {
    for (uint32_t row = batch.begin / w.out_width; row < end;) {
      const uint32_t in_image = row % w.out_height, count = std::min(end - row, w.out_height - in_image);
      int64_t y = int64_t{in_image} * w.stride_down - w.top;
      for (uint32_t i = 0; i < seen.rows_for(count); ++i, y += seen.skip_down(), to += seen.row_step()) {
        if (w.has_row(y))
          copy_seen_row<T>(images, seen, (size_t{row / w.out_height} * w.height + y) * w.width, left, to);
        else
          std::fill_n(to, seen.row_step(), 0.0F);
      }
      row += count;
    }
  });
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
