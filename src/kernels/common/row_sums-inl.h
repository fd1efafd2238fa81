// Accumulation of rows of X, for products on tiles.
#if defined(TESSERA_KERNELS_ROW_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_ROW_SUMS_INL_H_
#undef TESSERA_KERNELS_ROW_SUMS_INL_H_
#else
#define TESSERA_KERNELS_ROW_SUMS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernels/common/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

// One row of Y, in FP32 until it is stored.
class RowSums {
 public:
  explicit RowSums(size_t n) : n_(n), sums_(n + hn::MaxLanes(hn::ScalableTag<float>())) {}

  void clear() { std::fill(sums_.begin(), sums_.end(), 0.0F); }

  // sums = y
  template <class T>
  HWY_INLINE void load(const T* y) {
    convert_elements(n_, sums_.data(), y);
  }

  // sums += w · x
  template <class T>
  HWY_INLINE void add(float w, const T* x) {
    const hn::ScalableTag<float> d;
    const size_t lanes = hn::Lanes(d);
    const auto factor = hn::Set(d, w);
    size_t i = 0;
    for (; i + lanes <= n_; i += lanes)
      hn::StoreU(hn::MulAdd(factor, load_f32(d, x + i), hn::LoadU(d, &sums_[i])), d, &sums_[i]);
    if (i < n_)
      hn::StoreU(hn::MulAdd(factor, load_first(d, x + i, n_ - i), hn::LoadU(d, &sums_[i])), d, &sums_[i]);
  }

  template <class T>
  HWY_INLINE void store(T* y) const {
    convert_elements(n_, y, sums_.data());
  }

 private:
  size_t n_;
  std::vector<float> sums_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
