// Vectors of which only the first elements are in memory.
#if defined(TESSERA_KERNELS_SOME_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_SOME_INL_H_
#undef TESSERA_KERNELS_SOME_INL_H_
#else
#define TESSERA_KERNELS_SOME_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>

#include "kernels/common/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

using Floats = hn::ScalableTag<float>;
using Vector = hn::Vec<Floats>;

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
