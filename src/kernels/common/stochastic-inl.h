// Stochastic rounding of FP32 vectors, to the bits of base/stochastic_rounding.h. Each lane takes a random
// word.
#if defined(TESSERA_KERNELS_STOCHASTIC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_STOCHASTIC_INL_H_
#undef TESSERA_KERNELS_STOCHASTIC_INL_H_
#else
#define TESSERA_KERNELS_STOCHASTIC_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/common/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
using Words = hn::Vec<hn::RebindToUnsigned<D>>;

// Rounds numbers below 2^-14 to a multiple of 2^-24.
template <class D>
HWY_INLINE hn::Vec<D> round_small_half(D d, hn::Vec<D> magnitude, Words<D> words) {
  const hn::RebindToUnsigned<D> unsigned_tag;
  const hn::RebindToSigned<D> integers;
  const auto multiple = hn::Mul(magnitude, hn::Set(d, 0x1p24F));
  const auto whole = hn::ConvertTo(integers, multiple);
  const auto fraction =
      hn::ConvertTo(integers, hn::Mul(hn::Sub(multiple, hn::ConvertTo(d, whole)), hn::Set(d, 0x1p31F)));
  const auto sum = hn::Add(hn::BitCast(unsigned_tag, fraction), hn::ShiftRight<1>(words));
  const auto rounded = hn::Add(whole, hn::BitCast(integers, hn::ShiftRight<31>(sum)));
  return hn::Mul(hn::ConvertTo(d, rounded), hn::Set(d, 0x1p-24F));
}

template <class D>
HWY_INLINE void store_stochastic(D d, hn::Vec<D> value, Words<D> words, base::Half* to) {
  const hn::RebindToUnsigned<D> bits;
  const auto sum = hn::Add(hn::BitCast(bits, value), hn::ShiftRight<19>(words));
  const auto normal = hn::BitCast(d, hn::And(sum, hn::Set(bits, 0xFFFFE000)));
  const auto magnitude = hn::Abs(value);
  const auto is_small = hn::Lt(magnitude, hn::Set(d, 0x1p-14F));
  const auto small = round_small_half(d, hn::IfThenElseZero(is_small, magnitude), words);
  const auto rounded = hn::IfThenElse(is_small, hn::CopySignToAbs(small, value), normal);
  store_rounded(d, hn::IfThenElse(hn::Eq(value, value), rounded, value), to);  // a sum may carry out of NaN
}

template <class D>
HWY_INLINE void store_stochastic(D, hn::Vec<D> value, Words<D> words, base::Bfloat16* to) {
  const hn::RebindToUnsigned<D> bits_tag;
  const hn::Rebind<uint16_t, D> bits16;
  const auto bits = hn::BitCast(bits_tag, value);
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::ShiftRight<16>(words)));
  const auto quiet_nan = hn::Or(hn::ShiftRight<16>(bits), hn::Set(bits_tag, 0x40));
  const auto is_number = hn::RebindMask(bits_tag, hn::Eq(value, value));
  const auto result = hn::IfThenElse(is_number, rounded, quiet_nan);
  hn::StoreU(hn::TruncateTo(bits16, result), bits16, reinterpret_cast<uint16_t*>(to));
}

template <class T, class D>
HWY_INLINE void store_first_stochastic(D d, hn::Vec<D> value, Words<D> words, T* to, size_t count) {
  T lanes[hn::MaxLanes(d)];
  store_stochastic(d, value, words, lanes);
  std::memcpy(to, lanes, count * sizeof(T));
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
