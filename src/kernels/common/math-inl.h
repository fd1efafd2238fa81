// Functions on vectors that handle NaN and infinity, where Highway's functions are for finite numbers.
#if defined(TESSERA_KERNELS_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_MATH_INL_H_
#undef TESSERA_KERNELS_MATH_INL_H_
#else
#define TESSERA_KERNELS_MATH_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D, class V = hn::Vec<D>>
HWY_INLINE V infinity(D d) {
  return hn::Set(d, std::numeric_limits<float>::infinity());
}

// Maximum and minimum that are NaN if either operand is. Max and Min of some instruction sets return the
// other operand.
template <class V>
HWY_INLINE V maximum(V a, V b) {
  return hn::IfThenElse(hn::AndNot(hn::Gt(a, b), hn::Eq(a, a)), b, a);
}
template <class V>
HWY_INLINE V minimum(V a, V b) {
  return hn::IfThenElse(hn::AndNot(hn::Lt(a, b), hn::Eq(a, a)), b, a);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V exponential(D d, V x) {
  const V within =
      hn::Min(x, hn::Set(d, 89.0F));  // beyond FP32 already; Highway's exponent wraps from 176 on
  return hn::IfThenElse(hn::Eq(x, x), hn::Exp(d, within), x);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V logarithm(D d, V x) {
  const V zero = hn::Zero(d);
  const V log = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity(d)), hn::Log(d, x));
  const V number = hn::IfThenElse(hn::Lt(x, infinity(d)), log, x);  // infinity and NaN as they are
  return hn::IfThenElse(hn::Lt(x, zero), hn::Set(d, std::numeric_limits<float>::quiet_NaN()), number);
}

// Highway's functions are for angles up to 39000; larger angles are computed one by one.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V with_large_angles(D d, V x, V y, float (*function)(float)) {
  const auto is_small = hn::Lt(hn::Abs(x), hn::Set(d, 39000.0F));
  if (hn::AllTrue(d, is_small)) return y;
  float lanes[hn::MaxLanes(d)];
  hn::StoreU(x, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = function(lanes[i]);
  return hn::IfThenElse(is_small, y, hn::LoadU(d, lanes));
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V sine(D d, V x) {
  return with_large_angles(d, x, hn::Sin(d, x), std::sin);
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V cosine(D d, V x) {
  return with_large_angles(d, x, hn::Cos(d, x), std::cos);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0F);
  return hn::Div(one, hn::Add(one, exponential(d, hn::Neg(x))));
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
