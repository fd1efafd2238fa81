// Activations on vectors.
#if defined(TESSERA_KERNELS_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_ACTIVATION_INL_H_
#undef TESSERA_KERNELS_ACTIVATION_INL_H_
#else
#define TESSERA_KERNELS_ACTIVATION_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>
#include <tessera/types.h>

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// erf by Abramowitz & Stegun 7.1.26: error at most 1.5e-7.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erf_approximation(D d, V x) {
  const V magnitude = hn::Abs(x);
  const V t = hn::Div(hn::Set(d, 1.0F), hn::MulAdd(hn::Set(d, 0.3275911F), magnitude, hn::Set(d, 1.0F)));
  V p = hn::Set(d, 1.061405429F);
  p = hn::MulAdd(p, t, hn::Set(d, -1.453152027F));
  p = hn::MulAdd(p, t, hn::Set(d, 1.421413741F));
  p = hn::MulAdd(p, t, hn::Set(d, -0.284496736F));
  p = hn::MulAdd(p, t, hn::Set(d, 0.254829592F));
  const V tail = hn::Mul(hn::Mul(p, t), hn::Exp(d, hn::Neg(hn::Mul(magnitude, magnitude))));
  const V erf = hn::CopySign(hn::Sub(hn::Set(d, 1.0F), tail), x);
  return hn::IfThenElse(hn::Eq(x, x), erf, x);  // Exp may lose a NaN
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V activate(D d, Activation activation, V y) {
  switch (activation) {
    case Activation::none: return y;
    case Activation::relu: return hn::IfThenElse(hn::Lt(y, hn::Zero(d)), hn::Zero(d), y);
    case Activation::gelu: break;
  }
  const V half = hn::Mul(y, hn::Set(d, 0.5F));
  return hn::Mul(half, hn::Add(hn::Set(d, 1.0F), erf_approximation(d, hn::Mul(y, hn::Set(d, 0.70710678F)))));
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
