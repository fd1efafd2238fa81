// Bounds of depthwise convolutions.
#if defined(TESSERA_DEPTHWISE_BOUNDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_DEPTHWISE_BOUNDS_INL_H_
#undef TESSERA_DEPTHWISE_BOUNDS_INL_H_
#else
#define TESSERA_DEPTHWISE_BOUNDS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/common/some-inl.h"
#include "kernels/map/depthwise/codelet.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

constexpr uint32_t kMostTaps = 64;

/// Clips sums to their bounds; NaN stays.
struct Bounds {
  Vector low, high;

  HWY_INLINE explicit Bounds(const DepthwiseVertex& d)
      : low(hn::Set(Floats(), d.low)), high(hn::Set(Floats(), d.high)) {}
  HWY_INLINE Vector clip(Vector sum) const {
    const Vector above = hn::IfThenElse(hn::Lt(sum, low), low, sum);
    return hn::IfThenElse(hn::Gt(above, high), high, above);
  }
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
