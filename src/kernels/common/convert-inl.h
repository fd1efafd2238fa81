// Conversion of floating-point elements of every type to FP32 vectors and back: rounded once, to nearest
// even; values beyond the type become infinity; NaN stays NaN.
#if defined(TESSERA_KERNELS_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_CONVERT_INL_H_
#undef TESSERA_KERNELS_CONVERT_INL_H_
#else
#define TESSERA_KERNELS_CONVERT_INL_H_
#endif

#include <hwy/highway.h>
#include <tessera/types.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const base::Bfloat16* from) {
  const hn::Rebind<uint16_t, D> bits16;
  const hn::RebindToUnsigned<D> bits;
  const auto upper = hn::PromoteTo(bits, hn::LoadU(bits16, reinterpret_cast<const uint16_t*>(from)));
  return hn::BitCast(d, hn::ShiftLeft<16>(upper));
}

template <class D>
HWY_INLINE void store_rounded(D d, hn::Vec<D> value, float* to) {
  hn::StoreU(value, d, to);
}

template <class D>
HWY_INLINE void store_rounded(D, hn::Vec<D> value, base::Bfloat16* to) {
  const hn::RebindToUnsigned<D> bits_tag;
  const hn::Rebind<uint16_t, D> bits16;
  const auto bits = hn::BitCast(bits_tag, value);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(upper, hn::Set(bits_tag, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(bits_tag, 0x7FFF)), odd));
  const auto quiet_nan = hn::Or(upper, hn::Set(bits_tag, 0x40));
  const auto is_number = hn::RebindMask(bits_tag, hn::Eq(value, value));
  const auto result = hn::IfThenElse(is_number, rounded, quiet_nan);
  hn::StoreU(hn::TruncateTo(bits16, result), bits16, reinterpret_cast<uint16_t*>(to));
}

#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
// Highway's portable FP16 conversions truncate, and do not handle infinity and NaN.
template <class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const base::Half* from) {
  float lanes[hn::MaxLanes(d)];
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = base::to_float(from[i]);
  return hn::LoadU(d, lanes);
}

template <class D>
HWY_INLINE void store_rounded([[maybe_unused]] D d, hn::Vec<D> value, base::Half* to) {
  float lanes[hn::MaxLanes(d)];
  hn::StoreU(value, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) to[i] = base::to_half(lanes[i]);
}
#else
template <class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const base::Half* from) {
  const hn::Rebind<hwy::float16_t, D> bits16;
  return hn::PromoteTo(d, hn::LoadU(bits16, reinterpret_cast<const hwy::float16_t*>(from)));
}

template <class D>
HWY_INLINE void store_rounded([[maybe_unused]] D d, hn::Vec<D> value, base::Half* to) {
  const hn::Rebind<hwy::float16_t, D> bits16;
  hn::StoreU(hn::DemoteTo(bits16, value), bits16, reinterpret_cast<hwy::float16_t*>(to));
}
#endif

// Calls visit(T{}) with the C++ type of a floating-point element.
template <class Visit>
HWY_INLINE void with_float_type(Type type, const Visit& visit) {
  switch (type) {
    case Type::f16: return visit(base::Half{});
    case Type::bf16: return visit(base::Bfloat16{});
    default: return visit(float{});
  }
}

// Calls visit(A{}, B{}) with the C++ types of two floating-point elements.
template <class Visit>
HWY_INLINE void with_float_types(Type first, Type second, const Visit& visit) {
  with_float_type(first, [&]<class First>(First a) HWY_ATTR {
    with_float_type(second, [&]<class Second>(Second b) HWY_ATTR { visit(a, b); });
  });
}

template <class T, class D>
HWY_INLINE hn::Vec<D> load_first(D d, const T* from, size_t count) {
  T lanes[hn::MaxLanes(d)] = {};
  std::memcpy(lanes, from, count * sizeof(T));
  return load_f32(d, lanes);
}

#if !HWY_MEM_OPS_MIGHT_FAULT
// A vector load cannot be forwarded from the smaller stores that fill an array.
template <class D>
HWY_INLINE hn::Vec<D> load_first(D d, const float* from, size_t count) {
  return hn::MaskedLoad(hn::FirstN(d, count), d, from);
}
#endif

template <class T, class D>
HWY_INLINE void store_first(D d, hn::Vec<D> value, T* to, size_t count) {
  T lanes[hn::MaxLanes(d)];
  store_rounded(d, value, lanes);
  std::memcpy(to, lanes, count * sizeof(T));
}

// Stores the first `count` lanes, and writes nothing behind them, where another thread may write: on Arm, a
// BlendedStore would write back what it has read there.
template <class D>
HWY_INLINE void store_masked(D d, hn::Vec<D> value, float* to, size_t count) {
#if HWY_ARCH_ARM
  store_first(d, value, to, count);
#else
  hn::BlendedStore(value, hn::FirstN(d, count), d, to);
#endif
}

// out[i] = op(in[i]…), in FP32, rounded once.
template <class Op, class Out, class... In>
HWY_INLINE void map_elements(const Op& op, size_t count, Out* out, const In*... in) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) store_rounded(d, op(d, load_f32(d, in + i)...), out + i);
  if (i < count) store_first(d, op(d, load_first(d, in + i, count - i)...), out + i, count - i);
}

// out[i] = in[i].
template <class Out, class In>
HWY_INLINE void convert_elements(size_t count, Out* out, const In* in) {
  map_elements([](auto, auto x) HWY_ATTR { return x; }, count, out, in);
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
