// Blocks of row dot products, for SDDMM on tiles.
#if defined(TESSERA_KERNELS_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_DOT_INL_H_
#undef TESSERA_KERNELS_DOT_INL_H_
#else
#define TESSERA_KERNELS_DOT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "base/half.h"
#include "kernels/common/convert-inl.h"
#include "kernels/common/element.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

// Σ a[i] · b[i], in FP32.
template <class T>
HWY_INLINE float dot(const T* a, const T* b, size_t n) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  auto even = hn::Zero(d);
  auto odd = hn::Zero(d);
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    even = hn::MulAdd(load_f32(d, a + i), load_f32(d, b + i), even);
    odd = hn::MulAdd(load_f32(d, a + i + lanes), load_f32(d, b + i + lanes), odd);
  }
  for (; i < n; i += lanes) {
    const size_t rest = n - i < lanes ? n - i : lanes;
    even = hn::MulAdd(load_first(d, a + i, rest), load_first(d, b + i, rest), even);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
}

HWY_INLINE void store_one(float* to, float value) { *to = value; }
HWY_INLINE void store_one(base::Half* to, float value) { *to = base::to_half(value); }
HWY_INLINE void store_one(base::Bfloat16* to, float value) { *to = base::to_bfloat16(value); }

// One block of dW: b rows of dY, from `dy_row` on, times b rows of X, from `x_row` on; fewer at the edges.
template <class In, class Out>
void sample_block(const program::FieldView& dy, uint32_t dy_row, const program::FieldView& x, uint32_t x_row,
                  uint32_t b, Out* out) {
  for (uint32_t r = 0; r < b; ++r)
    for (uint32_t c = 0; c < b; ++c) {
      const bool inside = dy_row + r < dy.rows && x_row + c < x.rows;
      store_one(out + r * b + c, inside
                                     ? dot(reinterpret_cast<const In*>(address_of(dy, dy_row + r, 0)),
                                           reinterpret_cast<const In*>(address_of(x, x_row + c, 0)), dy.cols)
                                     : 0.0F);
    }
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
