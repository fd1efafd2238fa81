// Loads values of W as FP32.
#if defined(TESSERA_BLOCK_SPARSE_WIDEN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_BLOCK_SPARSE_WIDEN_INL_H_
#undef TESSERA_BLOCK_SPARSE_WIDEN_INL_H_
#else
#define TESSERA_BLOCK_SPARSE_WIDEN_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> load_values(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> load_values(D d, const hwy::float16_t* from) {
  const hn::Rebind<hwy::float16_t, D> bits16;
  return hn::PromoteTo(d, hn::LoadU(bits16, from));
}

template <class D>
HWY_INLINE hn::Vec<D> load_values(D d, const hwy::bfloat16_t* from) {
  const hn::Rebind<uint16_t, D> bits16;
  const hn::RebindToUnsigned<D> bits;
  const auto lower = hn::PromoteTo(bits, hn::LoadU(bits16, reinterpret_cast<const uint16_t*>(from)));
  return hn::BitCast(d, hn::ShiftLeft<16>(lower));
}

// `count` is a multiple of 16.
template <class T>
HWY_INLINE void widen(const T* from, size_t count, float* to) {
  const hn::ScalableTag<float> d;
  for (size_t i = 0; i < count; i += hn::Lanes(d)) hn::StoreU(load_values(d, from + i), d, to + i);
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
