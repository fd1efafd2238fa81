// Loads, stores and bounds of depthwise convolutions.
#if defined(TESSERA_DEPTHWISE_BOUNDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_DEPTHWISE_BOUNDS_INL_H_
#undef TESSERA_DEPTHWISE_BOUNDS_INL_H_
#else
#define TESSERA_DEPTHWISE_BOUNDS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>

#include "kernels/common/convert-inl.h"
#include "kernels/map/depthwise/codelet.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

using Floats = hn::ScalableTag<float>;
using Vector = hn::Vec<Floats>;

constexpr uint32_t kMostTaps = 64;

/// Sums within their bounds; NaN stays.
struct Bounds {
  Vector low, high;

  HWY_INLINE explicit Bounds(const DepthwiseVertex& d)
      : low(hn::Set(Floats(), d.low)), high(hn::Set(Floats(), d.high)) {}
  HWY_INLINE Vector clip(Vector sum) const {
    const Vector above = hn::IfThenElse(hn::Lt(sum, low), low, sum);
    return hn::IfThenElse(hn::Gt(above, high), high, above);
  }
};

/// `count` elements, at most a vector, with zeros after them.
template <class T>
HWY_INLINE Vector load_some(const T* from, size_t count) {
  return count >= hn::Lanes(Floats()) ? load_f32(Floats(), from) : load_first(Floats(), from, count);
}
template <class T>
HWY_INLINE void store_some(Vector value, T* to, size_t count) {
  if (count >= hn::Lanes(Floats())) return store_rounded(Floats(), value, to);
  store_first(Floats(), value, to, count);
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
