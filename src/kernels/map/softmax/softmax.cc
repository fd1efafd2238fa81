#include "kernels/map/softmax/softmax.h"

#include <algorithm>
#include <limits>

#include "base/simd.h"
#include "kernels/common/element.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/map/softmax/softmax.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::ScalableTag<float>;

/// Columns [begin, begin + count) as vectors along the rows; count is a vector's lanes at most.
class Columns {
 public:
  Columns(const program::FieldView& logits, size_t begin, size_t count)
      : logits_(logits), begin_(begin), count_(count) {}
  uint32_t classes() const { return logits_.rows; }

  auto mask() const { return hn::FirstN(Floats(), count_); }
  auto load(const program::FieldView& field, uint32_t row) const {
    return hn::MaskedLoad(mask(), Floats(), address(field, row));
  }
  auto load(uint32_t row) const { return load(logits_, row); }
  template <class V>
  void store(V value, const program::FieldView& field, uint32_t row) const {
    hn::BlendedStore(value, mask(), Floats(), address(field, row));
  }

 private:
  float* address(const program::FieldView& field, uint32_t row) const {
    return field.as<float>() + row * field.row_stride + begin_;
  }

  const program::FieldView& logits_;
  size_t begin_;
  size_t count_;
};

/// The gradient without the label's part, and what the logarithm of the sum of exponentials is.
auto log_of_sum(const Columns& columns, float scale, const program::FieldView& gradient) {
  const Floats d;
  auto most = columns.load(0);
  for (uint32_t i = 1; i < columns.classes(); ++i) most = hn::Max(most, columns.load(i));
  auto sum = hn::Zero(d);
  for (uint32_t i = 0; i < columns.classes(); ++i) {
    const auto power = hn::Exp(d, hn::Sub(columns.load(i), most));
    sum = hn::Add(sum, power);
    columns.store(power, gradient, i);
  }
  const auto factor = hn::Div(hn::Set(d, scale), sum);
  for (uint32_t i = 0; i < columns.classes(); ++i)
    columns.store(hn::Mul(columns.load(gradient, i), factor), gradient, i);
  return hn::Add(most, hn::Log(d, sum));
}

}  // namespace

void softmax_cross_entropy(const program::FieldView& logits, const program::FieldView& labels, float scale,
                           const program::FieldView& loss, const program::FieldView& gradient) {
  const Floats d;
  HWY_ALIGN float log_sums[hn::MaxLanes(Floats())];
  for (size_t begin = 0; begin < logits.cols; begin += hn::Lanes(d)) {
    const size_t count = std::min<size_t>(hn::Lanes(d), logits.cols - begin);
    hn::Store(log_of_sum({logits, begin, count}, scale, gradient), d, log_sums);
    for (size_t j = 0; j < count; ++j) {
      const auto col = static_cast<int64_t>(begin + j);
      const auto label = static_cast<int64_t>(number_at(labels, 0, col));
      const bool is_class = label < logits.rows;
      const float nan = std::numeric_limits<float>::quiet_NaN();
      set_number(loss, 0, col,
                 is_class ? log_sums[j] - static_cast<float>(number_at(logits, label, col)) : nan);
      if (is_class)
        set_number(gradient, label, col, number_at(gradient, label, col) - scale);
      else
        for (uint32_t i = 0; i < logits.rows; ++i) set_number(gradient, i, col, nan);
    }
  }
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(softmax_cross_entropy);

void apply_softmax_cross_entropy(const program::FieldView& logits, const program::FieldView& labels,
                                 float scale, const program::FieldView& loss,
                                 const program::FieldView& gradient) {
  HWY_DYNAMIC_DISPATCH(softmax_cross_entropy)(logits, labels, scale, loss, gradient);
}

}  // namespace tessera::kernels
#endif
