// The epilogue of a product, on vectors.
#if defined(TESSERA_KERNELS_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_EPILOGUE_INL_H_
#undef TESSERA_KERNELS_EPILOGUE_INL_H_
#else
#define TESSERA_KERNELS_EPILOGUE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>

#include "kernels/activation-inl.h"
#include "kernels/epilogue.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// y[0, count) from the sums of W·X, along a row of Y (bias_step 0) or a column (bias_step 1);
// `bias` may be null.
inline HWY_NOINLINE void finish_line(const Epilogue& e, const float* sums, size_t count,
                                     const float* bias, size_t bias_step, float* y) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const auto alpha = hn::Set(d, e.alpha);
  const auto beta = hn::Set(d, e.beta);
  for (size_t i = 0; i < count; i += lanes) {
    const bool whole = i + lanes <= count;
    const auto some = hn::FirstN(d, count - i);
    const auto load = [&](const float* from) HWY_ATTR {
      return whole ? hn::LoadU(d, from) : hn::MaskedLoad(some, d, from);
    };
    auto value = load(sums + i);
    if (e.alpha != 1.0F) value = hn::Mul(alpha, value);
    if (e.beta != 0.0F) value = hn::MulAdd(beta, load(y + i), value);
    if (bias != nullptr)
      value = hn::Add(value, bias_step == 0 ? hn::Set(d, *bias) : load(bias + i));
    value = activate(d, e.activation, value);
    if (whole) {
      hn::StoreU(value, d, y + i);
    } else {
      hn::BlendedStore(value, some, d, y + i);
    }
  }
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
