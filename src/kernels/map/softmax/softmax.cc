#include "kernels/map/softmax/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/simd.h"
#include "kernels/common/element.h"
#include "kernels/common/splits.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/map/softmax/softmax.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/convert-inl.h"
#include "kernels/common/math-inl.h"
#include "kernels/common/some-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

using program::FieldView;

/// Columns [first, first + count) of matrices with contiguous rows, each in a lane.
template <class T>
struct Columns {
  size_t first;
  size_t count;

  HWY_INLINE Vector load(const FieldView& field, uint32_t row) const {
    return load_some(field.as<const T>() + row * field.row_stride + first, count);
  }
  HWY_INLINE void store(Vector value, const FieldView& field, uint32_t row) const {
    store_some(value, field.as<T>() + row * field.row_stride + first, count);
  }
};

template <class V>
struct Sums {
  V largest;
  V sum;  ///< of the exponentials of differences to the largest
};

/// Writes exponentials row by row, unless nobody wants them.
template <class T>
HWY_INLINE Sums<Vector> exponentials(const FieldView& in, const Columns<T>& columns, float* powers) {
  const Floats d;
  Vector largest = columns.load(in, 0);
  for (uint32_t i = 1; i < in.rows; ++i) largest = hn::Max(largest, columns.load(in, i));
  Vector sum = hn::Zero(d);
  for (uint32_t i = 0; i < in.rows; ++i) {
    const Vector power = exponential(d, hn::Sub(columns.load(in, i), largest));
    sum = hn::Add(sum, power);
    if (powers != nullptr) hn::StoreU(power, d, powers + i * hn::Lanes(d));
  }
  return {largest, sum};
}

template <class T>
HWY_INLINE void store_times(const float* powers, Vector factor, const Columns<T>& columns,
                            const FieldView& out) {
  const Floats d;
  for (uint32_t i = 0; i < out.rows; ++i)
    columns.store(hn::Mul(hn::LoadU(d, powers + i * hn::Lanes(d)), factor), out, i);
}

/// The softmax of a contiguous line, which is padded to whole vectors in `powers`.
template <class T>
HWY_INLINE Sums<float> line_exponentials(const T* line, size_t count, float* powers) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  const Vector nothing = hn::Neg(infinity(d));
  Vector largest = nothing;
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const Vector x = load_f32(d, line + i);
    hn::StoreU(x, d, powers + i);
    largest = hn::Max(largest, x);
  }
  if (i < count) {
    const size_t rest = std::min(count - i, lanes);
    const Vector x = hn::IfThenElse(hn::FirstN(d, rest), load_first(d, line + i, rest), nothing);
    hn::StoreU(x, d, powers + i);
    largest = hn::Max(largest, x);
  }
  const Vector most = hn::MaxOfLanes(d, largest);
  Vector sum = hn::Zero(d);
  for (i = 0; i < count; i += lanes) {
    const Vector power = exponential(d, hn::Sub(hn::LoadU(d, powers + i), most));
    hn::StoreU(power, d, powers + i);
    sum = hn::Add(sum, power);
  }
  return {hn::GetLane(most), hn::GetLane(hn::SumOfLanes(d, sum))};
}

template <class T>
HWY_INLINE void store_line_times(const float* powers, float factor, size_t count, T* out) {
  const auto times = [factor](auto d, auto x) HWY_ATTR { return hn::Mul(x, hn::Set(d, factor)); };
  map_elements(times, count, out, powers);
}

/// Corrects the gradient, where `powers` are `stride` apart and `factor` times them is written already.
void correct_gradient(const CrossEntropy& of, uint32_t col, const float* powers, size_t stride,
                      float factor) {
  const uint32_t c = of.label(col);
  if (c < of.logits.rows)
    return set_number(of.gradient, c, col, powers[c * stride] * factor - of.scale_of(col));
  for (uint32_t i = 0; of.is_invalid(col) && i < of.logits.rows; ++i)
    set_number(of.gradient, i, col, std::numeric_limits<float>::quiet_NaN());
}

template <class T>
void cross_entropy_of_columns(const CrossEntropy& of) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  const bool has_gradient = of.gradient.data != nullptr;
  HWY_ALIGN float log_sums[hn::MaxLanes(Floats())];
  HWY_ALIGN float factors[hn::MaxLanes(Floats())] = {};
  std::vector<float> powers(has_gradient ? of.logits.rows * lanes : 0);
  float* wanted = has_gradient ? powers.data() : nullptr;
  for (uint32_t first = 0; first < of.logits.cols; first += lanes) {
    const Columns<T> columns{first, std::min<size_t>(lanes, of.logits.cols - first)};
    const auto [largest, sum] = exponentials(of.logits, columns, wanted);
    hn::Store(hn::Add(largest, logarithm(d, sum)), d, log_sums);
    for (uint32_t j = 0; j < columns.count; ++j) {
      set_number(of.loss, 0, first + j, of.loss_of(first + j, log_sums[j]));
      factors[j] = of.scale_of(first + j);
    }
    if (!has_gradient) continue;
    const Vector factor = hn::Div(hn::Load(d, factors), sum);
    hn::Store(factor, d, factors);
    store_times(powers.data(), factor, columns, of.gradient);
    for (uint32_t j = 0; j < columns.count; ++j)
      correct_gradient(of, first + j, &powers[j], lanes, factors[j]);
  }
}

template <class T>
void cross_entropy_of_lines(const CrossEntropy& of) {
  std::vector<float> powers(round_up(of.logits.rows, kMaxLanes));
  for (uint32_t j = 0; j < of.logits.cols; ++j) {
    const T* line = reinterpret_cast<const T*>(address_of(of.logits, 0, j));
    const auto [largest, sum] = line_exponentials(line, of.logits.rows, powers.data());
    set_number(of.loss, 0, j, of.loss_of(j, largest + std::log(sum)));
    if (of.gradient.data == nullptr) continue;
    const float factor = of.scale_of(j) / sum;
    store_line_times(powers.data(), factor, of.logits.rows,
                     reinterpret_cast<T*>(address_of(of.gradient, 0, j)));
    correct_gradient(of, j, powers.data(), 1, factor);
  }
}

}  // namespace

void softmax_columns(const FieldView& in, const FieldView& out) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  std::vector<float> powers(in.rows * lanes);
  with_float_type(in.type, [&]<class T>(T) HWY_ATTR {
    for (size_t first = 0; first < in.cols; first += lanes) {
      const Columns<T> columns{first, std::min<size_t>(lanes, in.cols - first)};
      const Vector sum = exponentials(in, columns, powers.data()).sum;
      store_times(powers.data(), hn::Div(hn::Set(d, 1.0F), sum), columns, out);
    }
  });
}

void softmax_lines(const FieldView& in, const FieldView& out) {
  std::vector<float> powers(round_up(in.rows, kMaxLanes));
  with_float_type(in.type, [&]<class T>(T) HWY_ATTR {
    for (uint32_t j = 0; j < in.cols; ++j) {
      const T* line = reinterpret_cast<const T*>(address_of(in, 0, j));
      const float sum = line_exponentials(line, in.rows, powers.data()).sum;
      store_line_times(powers.data(), 1 / sum, in.rows, reinterpret_cast<T*>(address_of(out, 0, j)));
    }
  });
}

void cross_entropy_columns(const CrossEntropy& of) {
  with_float_type(of.logits.type, [&]<class T>(T) HWY_ATTR { cross_entropy_of_columns<T>(of); });
}

void cross_entropy_lines(const CrossEntropy& of) {
  with_float_type(of.logits.type, [&]<class T>(T) HWY_ATTR { cross_entropy_of_lines<T>(of); });
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

HWY_EXPORT(softmax_columns);
HWY_EXPORT(softmax_lines);
HWY_EXPORT(cross_entropy_columns);
HWY_EXPORT(cross_entropy_lines);

bool has_contiguous_columns(const program::FieldView& field) {
  return field.row_stride == 1 || field.rows <= 1;
}

}  // namespace

bool apply_softmax(const program::FieldView& in, const program::FieldView& out) {
  if (in.empty()) return true;
  if (has_contiguous_columns(in) && has_contiguous_columns(out))
    HWY_DYNAMIC_DISPATCH(softmax_lines)(in, out);
  else if (has_contiguous_rows(in) && has_contiguous_rows(out))
    HWY_DYNAMIC_DISPATCH(softmax_columns)(in, out);
  else
    return false;
  return true;
}

uint32_t CrossEntropy::label(uint32_t col) const { return static_cast<uint32_t>(number_at(labels, 0, col)); }

float CrossEntropy::scale_of(uint32_t col) const {
  return weights.data == nullptr ? scale : f32_at(weights, 0, col);
}

bool CrossEntropy::is_invalid(uint32_t col) const {
  return label(col) >= logits.rows && (weights.data == nullptr || scale_of(col) != 0);
}

float CrossEntropy::loss_of(uint32_t col, float log_sum) const {
  if (is_invalid(col)) return std::numeric_limits<float>::quiet_NaN();
  const float weight = weights.data == nullptr ? 1 : scale_of(col);
  return weight == 0 ? 0 : weight * (log_sum - f32_at(logits, label(col), col));
}

bool apply_softmax_cross_entropy(const CrossEntropy& of) {
  if (of.logits.empty()) return true;
  const program::FieldView& result = of.gradient.data == nullptr ? of.logits : of.gradient;
  if (has_contiguous_columns(of.logits) && has_contiguous_columns(result))
    HWY_DYNAMIC_DISPATCH(cross_entropy_lines)(of);
  else if (has_contiguous_rows(of.logits) && has_contiguous_rows(result))
    HWY_DYNAMIC_DISPATCH(cross_entropy_columns)(of);
  else
    return false;
  return true;
}

}  // namespace tessera::kernels
#endif
