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
#include "kernels/common/convert-inl.h"
#include "kernels/common/epilogue.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows or columns of Y, and the sums of W·X for them.
struct Lines {
  const float* sums;
  size_t sums_step;  // between lines
  float* y;
  int64_t y_step;
  size_t lines;
  size_t count;         // elements of a line
  const float* bias;    // bias of the first element, or null
  bool are_rows;        // a bias per line, instead of one per element of a line
  bool stream = false;  // whole aligned vectors use non-temporal stores; Y is not read then
};

// Several vectors side by side, because an activation is a long chain of operations.
template <Activation kActivation>
HWY_NOINLINE void finish_lines_with(const Epilogue& e, const Lines& of) {
  constexpr size_t kUnrolled = 4;
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  constexpr size_t kStep = hn::MaxLanes(d);
  const V alpha = hn::Set(d, e.alpha);
  const V beta = hn::Set(d, e.beta);
  for (size_t line = 0; line < of.lines; ++line) {
    const float* sums = of.sums + line * of.sums_step;
    const float* bias = of.bias == nullptr || !of.are_rows ? of.bias : of.bias + line;
    float* y = of.y + static_cast<int64_t>(line) * of.y_step;
    const auto value_at = [&](size_t i, const auto& load) HWY_ATTR {
      V value = hn::Mul(alpha, load(sums + i));
      if (e.beta != 0.0F) value = hn::MulAdd(beta, load(y + i), value);
      if (bias != nullptr) value = hn::Add(value, of.are_rows ? hn::Set(d, *bias) : load(bias + i));
      return activate(d, kActivation, value);
    };
    const auto load = [&](const float* from) HWY_ATTR { return hn::LoadU(d, from); };
    const auto finish_part = [&](size_t i, size_t count) HWY_ATTR {
      const auto part = hn::FirstN(d, count);
      const auto load_part = [&](const float* from) HWY_ATTR { return hn::MaskedLoad(part, d, from); };
      store_masked(d, value_at(i, load_part), y + i, count);
    };

    const auto address = reinterpret_cast<uintptr_t>(y);
    const bool stream = of.stream && address % sizeof(float) == 0;
    const auto store = [&](V value, size_t i) HWY_ATTR {
      if (stream)
        hn::Stream(value, d, y + i);
      else
        hn::StoreU(value, d, y + i);
    };
    const size_t past_vector = stream ? address / sizeof(float) % kStep : 0;
    size_t i = past_vector == 0 ? 0 : std::min(kStep - past_vector, of.count);
    if (i != 0) finish_part(0, i);
    for (; i + kUnrolled * kStep <= of.count; i += kUnrolled * kStep) {
      V values[kUnrolled];
      for (size_t u = 0; u < kUnrolled; ++u) values[u] = value_at(i + u * kStep, load);
      for (size_t u = 0; u < kUnrolled; ++u) store(values[u], i + u * kStep);
    }
    for (; i + kStep <= of.count; i += kStep) store(value_at(i, load), i);
    if (i < of.count) finish_part(i, of.count - i);
  }
}

// Computes lines of Y from the sums of W·X.
inline void finish_lines(const Epilogue& e, const Lines& lines) {
  switch (e.activation) {
    case Activation::none: return finish_lines_with<Activation::none>(e, lines);
    case Activation::relu: return finish_lines_with<Activation::relu>(e, lines);
    case Activation::gelu: return finish_lines_with<Activation::gelu>(e, lines);
    case Activation::gelu_tanh: return finish_lines_with<Activation::gelu_tanh>(e, lines);
    case Activation::silu: return finish_lines_with<Activation::silu>(e, lines);
    case Activation::relu6: return finish_lines_with<Activation::relu6>(e, lines);
  }
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
