#include "kernels/map/dropout/dropout.h"

#include <algorithm>
#include <utility>

#include "base/simd.h"
#include "kernels/common/lines.h"
#include "kernels/common/row_parts.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/map/dropout/dropout.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/convert-inl.h"
#include "kernels/common/draws-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

template <class T>
void drop(float keep, const T* in, const uint32_t* words, size_t count, T* out) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const auto limit = hn::Set(d, keep);
  const auto dropped = [&](size_t i, auto x) HWY_ATTR {
    return hn::IfThenElseZero(draws_below(d, words + i, limit), hn::Div(x, limit));
  };
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) store_rounded(d, dropped(i, load_f32(d, in + i)), out + i);
  if (i == count) return;
  const size_t rest = std::min(count - i, lanes);
  store_first(d, dropped(i, load_first(d, in + i, rest)), out + i, rest);
}

}  // namespace

/// A contiguous run of elements whose random numbers follow each other from `index` on.
void dropout_run(const DropoutMask& mask, uint64_t index, Type type, const std::byte* in, size_t count,
                 std::byte* out) {
  with_float_type(type, [&]<class T>(T) HWY_ATTR {
    each_draw(mask.draws, index, count, [&](size_t i, const uint32_t* words, size_t some) HWY_ATTR {
      drop(mask.keep, reinterpret_cast<const T*>(in) + i, words, some, reinterpret_cast<T*>(out) + i);
    });
  });
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

HWY_EXPORT(dropout_run);

using program::FieldView;

void drop_row(const DropoutMask& mask, uint64_t index, const FieldView& in, const FieldView& out) {
  for_each_run<2>({in, out}, [&](const std::array<std::byte*, 2>& at, size_t count) {
    HWY_DYNAMIC_DISPATCH(dropout_run)(mask, index, in.type, at[0], count, at[1]);
    index += count;
  });
}

bool is_one_line(const FieldView& field) { return field.col_stride == 1 && field.row_stride == field.cols; }

}  // namespace

// Elements that are numbered along the rows but stored along the columns are taken in small blocks, so that
// cache lines of neighbouring rows are still there.
void apply_dropout(DropoutMask mask, FieldView in, FieldView out) {
  if (in.empty()) return;
  if (mask.col_step != 1 && mask.row_step == 1) {
    std::swap(mask.row_step, mask.col_step);
    in = transposed(in);
    out = transposed(out);
  }
  const bool is_line = is_one_line(in) && is_one_line(out) && mask.row_step == in.cols && mask.col_step == 1;
  if (is_line && in.elements() <= UINT32_MAX)
    for (FieldView* field : {&in, &out})
      *field = {field->data, in.type, 1, static_cast<uint32_t>(field->elements())};
  constexpr uint32_t kBlockRows = 16, kBlockCols = 256;
  const uint32_t cols = has_contiguous_rows(in) && has_contiguous_rows(out) ? in.cols : kBlockCols;
  const uint32_t step = mask.col_step == 1 ? cols : 1;
  for (uint32_t row = 0; row < in.rows; row += kBlockRows)
    for (uint32_t col = 0; col < in.cols; col += step)
      for (uint32_t r = row; r < std::min(row + kBlockRows, in.rows); ++r)
        drop_row(mask, mask.first + r * mask.row_step + col * mask.col_step, part_of_row(in, r, col, step),
                 part_of_row(out, r, col, step));
}

}  // namespace tessera::kernels
#endif
