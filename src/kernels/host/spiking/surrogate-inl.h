// Surrogate derivatives of vectors of distances from the threshold.
#if defined(TESSERA_SPIKING_SURROGATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_SPIKING_SURROGATE_INL_H_
#undef TESSERA_SPIKING_SURROGATE_INL_H_
#else
#define TESSERA_SPIKING_SURROGATE_INL_H_
#endif

#include <hwy/highway.h>
#include <tessera/spiking.h>

#include "kernels/common/math-inl.h"
#include "kernels/common/panels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE::spiking {
namespace hn = hwy::HWY_NAMESPACE;

using Lane = hn::Vec<Floats>;
using LaneMask = hn::Mask<Floats>;

HWY_INLINE Lane set(float x) { return hn::Set(Floats(), x); }

HWY_INLINE Lane surrogate_derivative(const Surrogate& of, Lane x) {
  constexpr float kHalfPi = 1.57079632679F;
  const Lane one = set(1), k = set(of.slope), scale = set(of.scale);
  switch (of.family) {
    case SurrogateFamily::superspike:
    case SurrogateFamily::fast_sigmoid: {
      const Lane root = hn::MulAdd(k, hn::Abs(x), one);
      return hn::Div(scale, hn::Mul(root, root));
    }
    case SurrogateFamily::arctan: {
      const Lane scaled = hn::Mul(set(kHalfPi * of.slope), x);
      return hn::Div(set(of.scale * of.slope / 2), hn::MulAdd(scaled, scaled, one));
    }
    case SurrogateFamily::triangle:
      return hn::Mul(scale, hn::Max(hn::Zero(Floats()), hn::NegMulAdd(k, hn::Abs(x), one)));
    case SurrogateFamily::sigmoid: {
      const Lane s = sigmoid(Floats(), hn::Mul(k, x));
      return hn::Mul(hn::Mul(scale, k), hn::Mul(s, hn::Sub(one, s)));
    }
    case SurrogateFamily::boxcar:
      return hn::IfThenElseZero(hn::Lt(hn::Abs(x), set(0.5F / of.slope)), hn::Mul(scale, k));
  }
  return one;
}

}  // namespace tessera::kernels::HWY_NAMESPACE::spiking
HWY_AFTER_NAMESPACE();
#endif
