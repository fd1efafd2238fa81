// What vectors of neurons do in a step: spikes, resets, and surrogate derivatives.
#if defined(TESSERA_SPIKING_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_SPIKING_STEP_INL_H_
#undef TESSERA_SPIKING_STEP_INL_H_
#else
#define TESSERA_SPIKING_STEP_INL_H_
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

HWY_INLINE LaneMask reaches(Lane u, Lane threshold, bool fires_at_threshold) {
  return fires_at_threshold ? hn::Ge(u, threshold) : hn::Gt(u, threshold);
}

// A potential after the reset by a spike of the same step, and of the step before.
HWY_INLINE Lane reset_at_once(Reset reset, Lane u, LaneMask fired, Lane threshold) {
  if (reset == Reset::zero) return hn::IfThenZeroElse(fired, u);
  if (reset == Reset::subtract) return hn::Sub(u, hn::IfThenElseZero(fired, threshold));
  return u;
}
HWY_INLINE Lane reset_late(Reset reset, Lane u, LaneMask fired_before, Lane threshold) {
  if (reset == Reset::late_zero) return hn::IfThenZeroElse(fired_before, u);
  if (reset == Reset::late_subtract) return hn::Sub(u, hn::IfThenElseZero(fired_before, threshold));
  return u;
}

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
