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

// A polynomial of x² fitted to erf(x) / x up to 3.75, from where on erf is 1: error at most 2e-7.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V error_function(D d, V x) {
  constexpr float kMost = 3.75F;
  const V t = hn::MulSub(hn::Mul(x, x), hn::Set(d, 2 / (kMost * kMost)), hn::Set(d, 1.0F));
  V p = hn::Set(d, 8.259111e-4F);
  for (const float c : {-2.1972333e-3F, 2.0407100e-3F, -3.0731014e-3F, 8.9608850e-3F, -1.6660996e-2F,
                        2.5021294e-2F, -3.7349764e-2F, 5.3607550e-2F, -7.1604848e-2F, 9.0740733e-2F,
                        -1.1194018e-1F, 1.3926879e-1F, -1.8803003e-1F, 3.7705693e-1F})
    p = hn::MulAdd(p, t, hn::Set(d, c));
  const auto is_one = hn::Ge(hn::Abs(x), hn::Set(d, kMost));
  return hn::IfThenElse(is_one, hn::CopySign(hn::Set(d, 1.0F), x), hn::Mul(p, x));
}

// exp(−x²)
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gaussian(D d, V x) {
  return hn::Exp(d, hn::Neg(hn::Mul(x, x)));
}

// x/2 · (1 + erf(x/√2))
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu(D d, V x) {
  const V half = hn::Mul(x, hn::Set(d, 0.5F));
  return hn::MulAdd(half, error_function(d, hn::Mul(x, hn::Set(d, kHalfRoot))), half);
}

// (1 + erf(x/√2)) / 2 + x exp(−x²/2) / √(2π)
template <class D, class V = hn::Vec<D>>
HWY_INLINE V gelu_gradient(D d, V x) {
  const V z = hn::Mul(x, hn::Set(d, kHalfRoot));
  const V power = gaussian(d, z);
  const V half = hn::Set(d, 0.5F);
  const V below = hn::MulAdd(half, error_function(d, z), half);
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
  const auto at_least_zero = hn::IfThenElse(hn::Lt(y, hn::Zero(d)), hn::Zero(d), y);
  const auto six = hn::Set(d, 6.0F);
  switch (activation) {
    case Activation::none: return y;
    case Activation::relu: return at_least_zero;
    case Activation::gelu: return gelu(d, y);
    case Activation::gelu_tanh: return gelu_tanh(d, y);
    case Activation::silu: return silu(d, y);
    case Activation::relu6: break;
  }
  return hn::IfThenElse(hn::Gt(y, six), six, at_least_zero);
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
