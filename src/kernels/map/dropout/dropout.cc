#include "kernels/map/dropout/dropout.h"

#include <algorithm>
#include <utility>

#include "base/random.h"
#include "base/simd.h"
#include "kernels/common/lines.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/map/dropout/dropout.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

using Counters = hn::ScalableTag<uint64_t>;
using Counter = hn::Vec<Counters>;

// Words that are drawn at once; after them there is room for a vector.
constexpr size_t kWords = 512;
constexpr size_t kSlack = 64;

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE Counter times(Counter a, uint32_t factor) {
  return hn::Set(Counters(), uint64_t{static_cast<uint32_t>(hn::GetLane(a))} * factor);
}
HWY_INLINE void store_pairs(Counter a, Counter b, uint64_t* to) {
  to[0] = hn::GetLane(a);
  to[1] = hn::GetLane(b);
}
#else
/// The product with the lower half of a number.
HWY_INLINE Counter times(Counter a, uint32_t factor) {
  const hn::Repartition<uint32_t, Counters> halves;
  return hn::MulEven(hn::BitCast(halves, a), hn::Set(halves, factor));
}
HWY_INLINE void store_pairs(Counter a, Counter b, uint64_t* to) {
  hn::StoreInterleaved2(a, b, Counters(), to);
}
#endif

/// base::philox() of several blocks, a block in each lane. Of each number only the lower half counts.
HWY_INLINE void draw_blocks(const DropoutMask& mask, uint64_t block, uint64_t* words) {
  const Counters d;
  Counter c0 = hn::Add(hn::Set(d, block), hn::Iota(d, 0));
  Counter c1 = hn::ShiftRight<32>(c0);
  Counter c2 = hn::Set(d, mask.operation);
  Counter c3 = hn::Set(d, mask.step);
  auto key0 = static_cast<uint32_t>(mask.seed);
  auto key1 = static_cast<uint32_t>(mask.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const Counter p0 = times(c0, 0xD2511F53);
    const Counter p1 = times(c2, 0xCD9E8D57);
    c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1), hn::Set(d, key0));
    c1 = p1;
    c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3), hn::Set(d, key1));
    c3 = p0;
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  const Counter lower = hn::Set(d, 0xFFFFFFFF);
  store_pairs(hn::Or(hn::And(c0, lower), hn::ShiftLeft<32>(c1)),
              hn::Or(hn::And(c2, lower), hn::ShiftLeft<32>(c3)), words);
}

/// Two words in each number, from word 4 · block on.
void draw(const DropoutMask& mask, uint64_t block, size_t blocks, uint64_t* words) {
  const size_t lanes = hn::Lanes(Counters());
  for (size_t i = 0; i < blocks; i += lanes) draw_blocks(mask, block + i, words + 2 * i);
}

template <class T>
void drop(const DropoutMask& mask, const T* in, const uint64_t* drawn, size_t skipped, size_t count, T* out) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> words;
  const hn::RebindToSigned<decltype(d)> integers;
  const size_t lanes = hn::Lanes(d);
  const auto keep = hn::Set(d, mask.keep);
  const auto* at = reinterpret_cast<const uint32_t*>(drawn) + skipped;
  const auto dropped = [&](size_t i, auto x) HWY_ATTR {
    const auto word = hn::BitCast(integers, hn::ShiftRight<8>(hn::LoadU(words, at + i)));
    const auto uniform = hn::Mul(hn::ConvertTo(d, word), hn::Set(d, 0x1p-24F));
    return hn::IfThenElseZero(hn::Lt(uniform, keep), hn::Div(x, keep));
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
  HWY_ALIGN uint64_t words[(kWords + kSlack) / 2];
  with_float_type(type, [&]<class T>(T) HWY_ATTR {
    for (size_t i = 0; i < count;) {
      const size_t skipped = (index + i) % 4;
      const size_t some = std::min(count - i, kWords - skipped);
      draw(mask, (index + i) / 4, (skipped + some + 3) / 4, words);
      drop(mask, reinterpret_cast<const T*>(in) + i, words, skipped, some, reinterpret_cast<T*>(out) + i);
      i += some;
    }
  });
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

HWY_EXPORT(dropout_run);

using program::FieldView;

/// Without a stride from row to row, so that it is not taken for a column.
FieldView part_of_row(const FieldView& field, uint32_t row, uint32_t col, uint32_t cols) {
  return {address_of(field, row, col), field.type, 1, std::min(cols, field.cols - col), 0, field.col_stride};
}

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
