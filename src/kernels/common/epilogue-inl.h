// The epilogue of a product on vectors.
#if defined(TESSERA_KERNELS_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_EPILOGUE_INL_H_
#undef TESSERA_KERNELS_EPILOGUE_INL_H_
#else
#define TESSERA_KERNELS_EPILOGUE_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/activation-inl.h"
#include "kernels/common/epilogue.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Computes y[0, count) from the sums of W·X, along a row of Y (bias_step 0) or a column (bias_step 1); `bias`
// may be null. With `stream`, whole aligned vectors use non-temporal stores; y is not read then.
inline HWY_NOINLINE void finish_line(const Epilogue& e, const float* sums, size_t count, const float* bias,
                                     size_t bias_step, float* y, bool stream = false) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const auto alpha = hn::Set(d, e.alpha);
  const auto beta = hn::Set(d, e.beta);
  const auto address = reinterpret_cast<uintptr_t>(y);
  stream = stream && address % sizeof(float) == 0;
  const size_t past_vector = stream ? address / sizeof(float) % lanes : 0;
  for (size_t i = 0, step = lanes - past_vector; i < count; i += step, step = lanes) {
    const bool whole = step == lanes && i + lanes <= count;
    const auto some = hn::FirstN(d, std::min(step, count - i));
    const auto load = [&](const float* from)
                          HWY_ATTR { return whole ? hn::LoadU(d, from) : hn::MaskedLoad(some, d, from); };
    auto value = load(sums + i);
    if (e.alpha != 1.0F) value = hn::Mul(alpha, value);
    if (e.beta != 0.0F) value = hn::MulAdd(beta, load(y + i), value);
    if (bias != nullptr) value = hn::Add(value, bias_step == 0 ? hn::Set(d, *bias) : load(bias + i));
    value = activate(d, e.activation, value);
    if (whole && stream) {
      hn::Stream(value, d, y + i);
    } else if (whole) {
      hn::StoreU(value, d, y + i);
    } else {
      hn::BlendedStore(value, some, d, y + i);
    }
  }
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
