// The epilogue of a product, on vectors.
#if defined(TESSERA_KERNELS_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_EPILOGUE_INL_H_
#undef TESSERA_KERNELS_EPILOGUE_INL_H_
#else
#define TESSERA_KERNELS_EPILOGUE_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cstddef>

#include "kernels/epilogue.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// erf by Abramowitz & Stegun 7.1.26: off by 1.5e-7 at most.
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
  return hn::IfThenElse(hn::Eq(x, x), erf, x);  // Exp need not keep a NaN
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V activate(D d, Activation activation, V y) {
  switch (activation) {
    case Activation::none: return y;
    case Activation::relu: return hn::IfThenElse(hn::Lt(y, hn::Zero(d)), hn::Zero(d), y);
    case Activation::gelu: break;
  }
  const V half = hn::Mul(y, hn::Set(d, 0.5F));
  return hn::Mul(half, hn::Add(hn::Set(d, 1.0F),
                               erf_approximation(d, hn::Mul(y, hn::Set(d, 0.70710678F)))));
}

// y[0, count) from the sums of W·X, along a row of Y (bias_step 0) or a column (bias_step 1);
// `bias` may be null.
HWY_NOINLINE void finish_line(const Epilogue& e, const float* sums, size_t count, const float* bias,
                              size_t bias_step, float* y) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const auto alpha = hn::Set(d, e.alpha);
  const auto beta = hn::Set(d, e.beta);
  for (size_t i = 0; i < count; i += lanes) {
    const bool whole = i + lanes <= count;
    const auto some = hn::FirstN(d, count - i);
    const auto load = [&](const float* from) HWY_ATTR {
      return whole ? hn::LoadU(d, from) : hn::MaskedLoad(some, d, from);
    };
    auto value = load(sums + i);
    if (e.alpha != 1.0F) value = hn::Mul(alpha, value);
    if (e.beta != 0.0F) value = hn::MulAdd(beta, load(y + i), value);
    if (bias != nullptr) value = hn::Add(value, bias_step == 0 ? hn::Set(d, *bias) : load(bias + i));
    value = activate(d, e.activation, value);
    if (whole) {
      hn::StoreU(value, d, y + i);
    } else {
      hn::BlendedStore(value, some, d, y + i);
    }
  }
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
