#include "kernels/map/cast/stochastic.h"

#include <algorithm>
#include <cstring>

#include "base/simd.h"
#include "kernels/common/lines.h"
#include "kernels/common/row_parts.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/map/cast/stochastic.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/draws-inl.h"
#include "kernels/common/stochastic-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

/// Word first + i of the stream goes to to[i · stride].
void draw(const Draws& draws, uint64_t first, size_t count, uint32_t* to, size_t stride) {
  each_draw(draws, first, count, [&](size_t i, const uint32_t* words, size_t some) {
    if (stride == 1)
      std::memcpy(to + i, words, some * sizeof *words);
    else
      for (size_t j = 0; j < some; ++j) to[(i + j) * stride] = words[j];
  });
}

template <class To, class From>
void round_line(const From* in, const uint32_t* words, size_t count, To* out) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> words_tag;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes)
    store_stochastic(d, load_f32(d, in + i), hn::LoadU(words_tag, words + i), out + i);
  if (i == count) return;
  const size_t rest = std::min(count - i, lanes);
  store_first_stochastic(d, load_first(d, in + i, rest), hn::LoadU(words_tag, words + i), out + i, rest);
}

}  // namespace

/// The words of a block of elements, row by row: in runs that follow each other in the stream, if a step of
/// the order is 1.
void draw_block(const StochasticCast& cast, uint32_t rows, uint32_t cols, uint32_t* words) {
  const ElementOrder& order = cast.order;
  if (order.group == 1 && order.group_step == 1) {
    for (uint32_t r = 0; r < rows; ++r)
      draw(cast.draws, cast.element(r, 0), cols, words + size_t{r} * cols, 1);
  } else if (order.row_step == 1) {
    for (uint32_t c = 0; c < cols; ++c) draw(cast.draws, cast.element(0, c), rows, words + c, cols);
  } else {
    const uint32_t step = order.group_step == 1 ? std::min(order.group, cols) : cols;
    for (uint32_t r = 0; r < rows; ++r)
      for (uint32_t c = 0; c < step; ++c) {
        const uint32_t count = order.group_step == 1 ? (cols - c + step - 1) / step : 1;
        draw(cast.draws, cast.element(r, c), count, words + size_t{r} * cols + c, step);
      }
  }
}

void round_run(Type from, Type to, const std::byte* in, const uint32_t* words, size_t count, std::byte* out) {
  with_float_type(from, [&]<class From>(From) HWY_ATTR {
    const auto* source = reinterpret_cast<const From*>(in);
    if (to == Type::f16)
      round_line(source, words, count, reinterpret_cast<base::Half*>(out));
    else
      round_line(source, words, count, reinterpret_cast<base::Bfloat16*>(out));
  });
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

HWY_EXPORT(draw_block);
HWY_EXPORT(round_run);

using program::FieldView;

/// Elements of a block, and room for a vector behind its words.
constexpr uint32_t kBlockElements = 4096, kMostRows = 32, kSlack = 64;

/// Makes a contiguous matrix whose elements are numbered in storage order one line.
void join_rows(StochasticCast& cast, FieldView& in, FieldView& out) {
  const auto is_line = [](const FieldView& f) { return f.col_stride == 1 && f.row_stride == f.cols; };
  const bool is_numbered = cast.order == ElementOrder::strided(in.cols, 1);
  if (!is_numbered || !is_line(in) || !is_line(out) || in.elements() > UINT32_MAX) return;
  cast.col = cast.element(0, 0);
  cast.row = 0;
  for (FieldView* field : {&in, &out})
    *field = {field->data, field->type, 1, static_cast<uint32_t>(field->elements())};
}

}  // namespace

void apply_stochastic_cast(StochasticCast cast, FieldView in, FieldView out) {
  if (in.empty()) return;
  join_rows(cast, in, out);
  alignas(64) uint32_t words[kBlockElements + kSlack];
  // Columns of a group follow each other in the stream.
  const uint32_t most_rows = cast.order.group > 1 ? 1 : std::min(in.rows, kMostRows);
  const uint32_t most_cols = kBlockElements / most_rows;
  for (uint32_t row = 0; row < in.rows; row += most_rows)
    for (uint32_t col = 0; col < in.cols; col += most_cols) {
      const uint32_t rows = std::min(most_rows, in.rows - row), cols = std::min(most_cols, in.cols - col);
      HWY_DYNAMIC_DISPATCH(draw_block)
      ({cast.draws, cast.order, cast.row + row, cast.col + col}, rows, cols, words);
      for (uint32_t r = 0; r < rows; ++r) {
        const uint32_t* at_word = words + size_t{r} * cols;
        for_each_run<2>({part_of_row(in, row + r, col, cols), part_of_row(out, row + r, col, cols)},
                        [&](const std::array<std::byte*, 2>& at, size_t count) {
                          HWY_DYNAMIC_DISPATCH(round_run)
                          (in.type, out.type, at[0], at_word, count, at[1]);
                          at_word += count;
                        });
      }
    }
}

}  // namespace tessera::kernels
#endif
