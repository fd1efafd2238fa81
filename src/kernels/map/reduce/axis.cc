#include "kernels/map/reduce/axis.h"

#include <algorithm>
#include <vector>

#include "base/integer_types.h"
#include "base/simd.h"
#include "kernels/common/element.h"
#include "kernels/common/lines.h"
#include "kernels/common/splits.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/map/reduce/axis.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/convert-inl.h"
#include "kernels/common/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

using Floats = hn::ScalableTag<float>;
using Vector = hn::Vec<Floats>;

/// What a reduction starts from, and how it takes in elements and partial results.
template <Reduction op>
struct Fold {
  static HWY_INLINE Vector identity() {
    return op == Reduction::maximum ? hn::Neg(infinity(Floats())) : hn::Zero(Floats());
  }
  static HWY_INLINE Vector add(Vector sum, Vector x) {
    if constexpr (op == Reduction::maximum) return maximum(sum, x);
    if constexpr (op == Reduction::sum) return hn::Add(sum, x);
    if constexpr (op == Reduction::sum_of_squares) return hn::MulAdd(x, x, sum);
  }
  static HWY_INLINE Vector join(Vector a, Vector b) {
    if constexpr (op == Reduction::maximum) return maximum(a, b);
    return hn::Add(a, b);
  }
  static HWY_INLINE float across(Vector sums) {
    const Floats d;
    if constexpr (op != Reduction::maximum) return hn::GetLane(hn::SumOfLanes(d, sums));
    const bool any_nan = !hn::AllTrue(d, hn::Eq(sums, sums));
    return any_nan ? std::numeric_limits<float>::quiet_NaN() : hn::GetLane(hn::MaxOfLanes(d, sums));
  }
};

/// The first `count` elements, and the identity beside them.
template <Reduction op, class T>
HWY_INLINE Vector load_some(const T* from, size_t count) {
  const Floats d;
  return hn::IfThenElse(hn::FirstN(d, count), load_first(d, from, count), Fold<op>::identity());
}

/// Several rows at once, so that a sum is loaded and stored once for all of them.
template <Reduction op, uint32_t rows, class T>
HWY_INLINE void fold_group(const T* from, int64_t stride, size_t cols, float* sums) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= cols; i += lanes) {
    Vector sum = hn::LoadU(d, sums + i);
    for (uint32_t r = 0; r < rows; ++r) sum = Fold<op>::add(sum, load_f32(d, from + r * stride + i));
    hn::StoreU(sum, d, sums + i);
  }
  if (i == cols) return;
  Vector sum = hn::LoadU(d, sums + i);
  for (uint32_t r = 0; r < rows; ++r)
    sum = Fold<op>::add(sum, load_first(d, from + r * stride + i, cols - i));
  hn::StoreU(sum, d, sums + i);
}

template <Reduction op, class T>
void fold_rows(const T* from, int64_t stride, uint32_t rows, size_t cols, float* sums) {
  constexpr uint32_t kRows = 8;
  uint32_t r = 0;
  for (; r + kRows <= rows; r += kRows) fold_group<op, kRows>(from + r * stride, stride, cols, sums);
  for (; r < rows; ++r) fold_group<op, 1>(from + r * stride, stride, cols, sums);
}

/// Four sums hide the latency of additions.
template <Reduction op, class T>
HWY_INLINE void add_line(const T* from, size_t count, Vector& s0, Vector& s1, Vector& s2, Vector& s3) {
  using F = Fold<op>;
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    s0 = F::add(s0, load_f32(d, from + i));
    s1 = F::add(s1, load_f32(d, from + i + lanes));
    s2 = F::add(s2, load_f32(d, from + i + 2 * lanes));
    s3 = F::add(s3, load_f32(d, from + i + 3 * lanes));
  }
  for (; i + lanes <= count; i += lanes) s0 = F::add(s0, load_f32(d, from + i));
  if (i < count) s1 = F::add(s1, load_some<op>(from + i, count - i));
}

template <Reduction op>
HWY_INLINE float across_all(Vector s0, Vector s1, Vector s2, Vector s3) {
  using F = Fold<op>;
  return F::across(F::join(F::join(s0, s1), F::join(s2, s3)));
}

template <Reduction op, class T>
float whole_line(const T* from, size_t count) {
  Vector s0 = Fold<op>::identity(), s1 = s0, s2 = s0, s3 = s0;
  add_line<op>(from, count, s0, s1, s2, s3);
  return across_all<op>(s0, s1, s2, s3);
}

template <class Visit>
HWY_INLINE void with_reduction(Reduction op, const Visit& visit) {
  switch (op) {
#define TESSERA_CASE(name) \
  case Reduction::name: return visit.template operator()<Reduction::name>();
    TESSERA_REDUCTIONS(TESSERA_CASE)
#undef TESSERA_CASE
  }
}

}  // namespace

void axis_begin(Reduction op, size_t cols, float* sums) {
  const Floats d;
  with_reduction(op, [&]<Reduction of>() HWY_ATTR {
    for (size_t i = 0; i < cols; i += hn::Lanes(d)) hn::StoreU(Fold<of>::identity(), d, sums + i);
  });
}

void axis_fold(Reduction op, const program::FieldView& in, float* sums) {
  with_reduction(op, [&]<Reduction of>() HWY_ATTR {
    with_float_type(in.type, [&]<class T>(T) HWY_ATTR {
      fold_rows<of>(in.as<const T>(), in.row_stride, in.rows, in.cols, sums);
    });
  });
}

/// sums[r] = op of row r.
void axis_rows(Reduction op, const program::FieldView& in, float* sums) {
  with_reduction(op, [&]<Reduction of>() HWY_ATTR {
    with_float_type(in.type, [&]<class T>(T) HWY_ATTR {
      for (uint32_t r = 0; r < in.rows; ++r)
        sums[r] = whole_line<of>(in.as<const T>() + r * in.row_stride, in.cols);
    });
  });
}

/// Four vectors of sums.
void axis_line(Reduction op, Type type, const std::byte* from, size_t count, float* sums) {
  with_reduction(op, [&]<Reduction of>() HWY_ATTR {
    with_float_type(type, [&]<class T>(T) HWY_ATTR {
      const Floats d;
      const size_t lanes = hn::Lanes(d);
      Vector s0 = hn::LoadU(d, sums), s1 = hn::LoadU(d, sums + lanes);
      Vector s2 = hn::LoadU(d, sums + 2 * lanes), s3 = hn::LoadU(d, sums + 3 * lanes);
      add_line<of>(reinterpret_cast<const T*>(from), count, s0, s1, s2, s3);
      hn::StoreU(s0, d, sums);
      hn::StoreU(s1, d, sums + lanes);
      hn::StoreU(s2, d, sums + 2 * lanes);
      hn::StoreU(s3, d, sums + 3 * lanes);
    });
  });
}

float axis_line_end(Reduction op, const float* sums) {
  float total = 0;
  with_reduction(op, [&]<Reduction of>() HWY_ATTR {
    const Floats d;
    const size_t lanes = hn::Lanes(d);
    total = across_all<of>(hn::LoadU(d, sums), hn::LoadU(d, sums + lanes), hn::LoadU(d, sums + 2 * lanes),
                           hn::LoadU(d, sums + 3 * lanes));
  });
  return total;
}

/// A contiguous line of results.
void axis_scaled(const float* sums, size_t count, float scale, Type type, std::byte* out) {
  const auto times = [scale](auto d, auto sum) HWY_ATTR { return hn::Mul(hn::Set(d, scale), sum); };
  with_float_type(type,
                  [&]<class T>(T) HWY_ATTR { map_elements(times, count, reinterpret_cast<T*>(out), sums); });
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

HWY_EXPORT(axis_begin);
HWY_EXPORT(axis_fold);
HWY_EXPORT(axis_rows);
HWY_EXPORT(axis_line);
HWY_EXPORT(axis_line_end);
HWY_EXPORT(axis_scaled);

using program::FieldView;

FieldView part_of(FieldView field, uint32_t row, uint32_t rows, uint32_t col, uint32_t cols) {
  field.data = address_of(field, row, col);
  field.rows = std::min(rows, field.rows - row);
  field.cols = std::min(cols, field.cols - col);
  return field;
}

uint32_t parts_of(uint32_t elements, uint32_t part) { return (elements - 1) / part + 1; }

/// sums[c] = op of column c.
void axis_columns(Reduction op, const FieldView& in, float* sums) {
  begin_columns(op, in.cols, sums);
  fold_columns(op, in, sums);
}

/// Stores sums as elements of a row.
void store_row(const float* sums, float scale, const FieldView& out) {
  if (has_contiguous_rows(out))
    return HWY_DYNAMIC_DISPATCH(axis_scaled)(sums, out.cols, scale, out.type, out.data);
  for (uint32_t c = 0; c < out.cols; ++c) set_number(out, 0, c, scale * sums[c]);
}

void reduce_columns(Reduction op, const FieldView& in, float scale, const FieldView& out,
                    program::Helpers* helpers) {
  const uint32_t row_parts = parts_of(in.rows, kPartRows);
  const uint32_t blocks = parts_of(in.cols, kPartCols);
  const auto finish = [&](Reduction of, const FieldView& from, uint32_t block) {
    const uint32_t col = block * kPartCols;
    alignas(64) float sums[kPartCols];
    axis_columns(of, part_of(from, 0, from.rows, col, kPartCols), sums);
    store_row(sums, scale, part_of(out, 0, 1, col, kPartCols));
  };
  if (row_parts == 1)
    return program::share_work(helpers, blocks, nullptr, [&](uint32_t i, std::byte*) { finish(op, in, i); });
  const int64_t pitch = round_up(in.cols, kMaxLanes);
  std::vector<float> partials(static_cast<size_t>(pitch) * row_parts);
  program::share_work(helpers, row_parts * blocks, nullptr, [&](uint32_t i, std::byte*) {
    const uint32_t row = i / blocks;
    const uint32_t col = i % blocks * kPartCols;
    axis_columns(op, part_of(in, row * kPartRows, kPartRows, col, kPartCols), &partials[row * pitch + col]);
  });
  const FieldView stacked{
      reinterpret_cast<std::byte*>(partials.data()), Type::f32, row_parts, in.cols, pitch, 1};
  program::share_work(helpers, blocks, nullptr,
                      [&](uint32_t i, std::byte*) { finish(joining(op), stacked, i); });
}

void reduce_rows(Reduction op, const FieldView& in, float scale, const FieldView& out,
                 program::Helpers* helpers) {
  const uint32_t pieces = parts_of(in.cols, kPieceCols);                   // of a row
  const uint32_t rows = std::max(1U, kPieceCols / std::max(1U, in.cols));  // of a part
  std::vector<float> partials(size_t{in.rows} * pieces);
  program::share_work(helpers, parts_of(in.rows, rows) * pieces, nullptr, [&](uint32_t i, std::byte*) {
    const uint32_t row = i / pieces * rows;
    const FieldView part = part_of(in, row, rows, i % pieces * kPieceCols, kPieceCols);
    HWY_DYNAMIC_DISPATCH(axis_rows)(op, part, &partials[size_t{row} * pieces + i % pieces]);
  });
  if (pieces == 1) return store_row(partials.data(), scale, transposed(out));
  const FieldView stacked{
      reinterpret_cast<std::byte*>(partials.data()), Type::f32, in.rows, pieces, pieces, 1};
  std::vector<float> sums(in.rows);
  HWY_DYNAMIC_DISPATCH(axis_rows)(joining(op), stacked, sums.data());
  store_row(sums.data(), scale, transposed(out));
}

}  // namespace

void begin_columns(Reduction op, uint32_t cols, float* sums) {
  HWY_DYNAMIC_DISPATCH(axis_begin)(op, cols, sums);
}

void fold_columns(Reduction op, const FieldView& in, float* sums) {
  HWY_DYNAMIC_DISPATCH(axis_fold)(op, in, sums);
}

void store_columns(const float* sums, float scale, const FieldView& out) { store_row(sums, scale, out); }

void reduce_lines(Reduction op, const FieldView& in, float* sums) {
  HWY_DYNAMIC_DISPATCH(axis_rows)(op, in, sums);
}

void begin_line(Reduction op, float* sums) { begin_columns(op, kLineSums, sums); }

void fold_line(Reduction op, Type type, const std::byte* from, uint32_t count, float* sums) {
  HWY_DYNAMIC_DISPATCH(axis_line)(op, type, from, count, sums);
}

float end_line(Reduction op, const float* sums) { return HWY_DYNAMIC_DISPATCH(axis_line_end)(op, sums); }

bool apply_axis_reduction(Reduction op, bool over_rows, FieldView in, float scale, FieldView out,
                          program::Helpers* helpers) {
  if (out.empty()) return true;
  if (in.empty() || is_integer(in.type)) return false;
  if (in.row_stride == 1 && (in.col_stride != 1 || in.cols == 1)) {
    in = transposed(in);
    out = transposed(out);
    over_rows = !over_rows;
  }
  if (!has_contiguous_rows(in)) return false;
  over_rows ? reduce_columns(op, in, scale, out, helpers) : reduce_rows(op, in, scale, out, helpers);
  return true;
}

bool apply_total_reduction(Reduction op, FieldView in, float scale, FieldView out,
                           program::Helpers* helpers) {
  if (in.empty() || is_integer(in.type)) return false;
  if (in.col_stride == 1 && in.row_stride == in.cols)
    in = {in.data, in.type, 1, in.rows * in.cols, in.row_stride, 1};
  if (in.rows == 1 || in.cols == 1) return apply_axis_reduction(op, in.cols == 1, in, scale, out, helpers);
  std::vector<float> of_rows(in.rows);
  const FieldView results{reinterpret_cast<std::byte*>(of_rows.data()), Type::f32, in.rows, 1, 1, 1};
  return apply_axis_reduction(op, false, in, 1, results, helpers) &&
         apply_axis_reduction(joining(op), true, results, scale, out, helpers);
}

}  // namespace tessera::kernels
#endif
