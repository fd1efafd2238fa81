// Activations on vectors.
#if defined(TESSERA_KERNELS_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_ACTIVATION_INL_H_
#undef TESSERA_KERNELS_ACTIVATION_INL_H_
#else
#define TESSERA_KERNELS_ACTIVATION_INL_H_
#endif

#include <hwy/highway.h>
#include <tessera/types.h>

#include "kernels/common/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr float kHalfRoot = 0.70710678F;  // √½

// erf by Abramowitz & Stegun 7.1.26, given exp(−x²): error at most 1.5e-7.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erf_approximation(D d, V x, V power) {
  const V t = hn::Div(hn::Set(d, 1.0F), hn::MulAdd(hn::Set(d, 0.3275911F), hn::Abs(x), hn::Set(d, 1.0F)));
  V p = hn::Set(d, 1.061405429F);
  p = hn::MulAdd(p, t, hn::Set(d, -1.453152027F));
  p = hn::MulAdd(p, t, hn::Set(d, 1.421413741F));
  p = hn::MulAdd(p, t, hn::Set(d, -0.284496736F));
  p = hn::MulAdd(p, t, hn::Set(d, 0.254829592F));
  const V tail = hn::Mul(hn::Mul(p, t), power);
  const V erf = hn::CopySign(hn::Sub(hn::Set(d, 1.0F), tail), x);
  return hn::IfThenElse(hn::Eq(x, x), erf, x);  // Exp may lose a NaN
}

// exp(−x²)
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gaussian(D d, V x) {
  return hn::Exp(d, hn::Neg(hn::Mul(x, x)));
}

// x/2 · (1 + erf(x/√2))
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu(D d, V x) {
  const V z = hn::Mul(x, hn::Set(d, kHalfRoot));
  const V half = hn::Mul(x, hn::Set(d, 0.5F));
  return hn::Mul(half, hn::Add(hn::Set(d, 1.0F), erf_approximation(d, z, gaussian(d, z))));
}

// (1 + erf(x/√2)) / 2 + x exp(−x²/2) / √(2π)
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_gradient(D d, V x) {
  const V z = hn::Mul(x, hn::Set(d, kHalfRoot));
  const V power = gaussian(d, z);
  const V half = hn::Set(d, 0.5F);
  const V below = hn::MulAdd(half, erf_approximation(d, z, power), half);
  return hn::MulAdd(x, hn::Mul(hn::Set(d, 0.39894228F), power), below);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V silu(D d, V x) {
  return hn::Mul(x, sigmoid(d, x));
}

// s + x s (1 − s), s being the sigmoid.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V silu_gradient(D d, V x) {
  const V s = sigmoid(d, x);
  return hn::MulAdd(hn::Mul(x, s), hn::Sub(hn::Set(d, 1.0F), s), s);
}

// The sigmoid of 2 √(2/π) (x + 0.044715 x³).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_tanh_sigmoid(D d, V x) {
  const V cubic = hn::MulAdd(hn::Set(d, 0.071354816F), hn::Mul(x, x), hn::Set(d, 1.5957691F));
  return sigmoid(d, hn::Mul(x, cubic));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_tanh(D d, V x) {
  return hn::Mul(x, gelu_tanh_sigmoid(d, x));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_tanh_gradient(D d, V x) {
  const V s = gelu_tanh_sigmoid(d, x);
  const V slope = hn::MulAdd(hn::Set(d, 0.21406445F), hn::Mul(x, x), hn::Set(d, 1.5957691F));
  const V rest = hn::Mul(hn::Mul(x, s), hn::Sub(hn::Set(d, 1.0F), s));
  return hn::Add(s, hn::Mul(slope, rest));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V activate(D d, Activation activation, V y) {
  switch (activation) {
    case Activation::none: return y;
    case Activation::relu: return hn::IfThenElse(hn::Lt(y, hn::Zero(d)), hn::Zero(d), y);
    case Activation::gelu: break;
  }
  return gelu(d, y);
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
