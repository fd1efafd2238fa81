#include "kernels/map/optimizer/optimizer.h"

#include "base/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/map/optimizer/optimizer.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

void momentum_step(float rate, float momentum, const float* gradient, size_t count, float* velocity,
                   float* weight) {
  const hn::ScalableTag<float> d;
  const auto step = [&](auto tag, size_t i) HWY_ATTR {
    const auto v =
        hn::MulAdd(hn::Set(tag, momentum), hn::LoadU(tag, velocity + i), hn::LoadU(tag, gradient + i));
    hn::StoreU(v, tag, velocity + i);
    hn::StoreU(hn::NegMulAdd(hn::Set(tag, rate), v, hn::LoadU(tag, weight + i)), tag, weight + i);
  };
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) step(d, i);
  for (; i < count; ++i) step(hn::CappedTag<float, 1>(), i);
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(momentum_step);

void apply_momentum(float rate, float momentum, const program::FieldView& gradient,
                    const program::FieldView& velocity, const program::FieldView& weight) {
  const auto row_of = [](const program::FieldView& field, uint32_t r) {
    return field.as<float>() + r * field.row_stride;
  };
  for (uint32_t r = 0; r < weight.rows; ++r) {
    const float* from = row_of(gradient, r);
    HWY_DYNAMIC_DISPATCH(momentum_step)
    (rate, momentum, from, weight.cols, row_of(velocity, r), row_of(weight, r));
  }
}

}  // namespace tessera::kernels
#endif
