#include "kernels/map/cast/cast.h"

#include "base/integer_types.h"
#include "base/simd.h"
#include "kernels/common/lines.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/map/cast/cast.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

void widen_pixels(const std::byte* in, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<float>(std::to_integer<uint8_t>(in[i]));
}

void cast_integers(Type from, Type to, const std::byte* in, size_t count, std::byte* out) {
  for (size_t i = 0; i < count; ++i) {
    const double number = load_number(from, in + i * size_of(from));
    store_number(to, out + i * size_of(to), converted(from, to, number));
  }
}

}  // namespace

void cast(Type from, Type to, const std::byte* in, size_t count, std::byte* out) {
  if (from == Type::u8 && to == Type::f32) return widen_pixels(in, count, reinterpret_cast<float*>(out));
  if (is_integer(from) || is_integer(to)) return cast_integers(from, to, in, count, out);
  with_float_type(from, [&]<class From>(From) HWY_ATTR {
    with_float_type(to, [&]<class To>(To) HWY_ATTR {
      convert_elements(count, reinterpret_cast<To*>(out), reinterpret_cast<const From*>(in));
    });
  });
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(cast);

void run_cast(Type from, Type to, const std::byte* in, size_t count, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(cast)(from, to, in, count, out);
}

void apply_cast(const program::FieldView& in, const program::FieldView& out) {
  for_each_run<2>({in, out}, [&](const std::array<std::byte*, 2>& at, size_t count) {
    run_cast(in.type, out.type, at[0], count, at[1]);
  });
}

}  // namespace tessera::kernels
#endif
