// Activations of scalars.
#pragma once

#include <tessera/types.h>

#include <cmath>

namespace tessera::kernels {

/// Φ(x) + x φ(x), of the standard normal distribution.
inline float gelu_gradient(float x) {
  constexpr float kDensityAtZero = 0.39894228F;  // 1/√(2π)
  return 0.5F * (1 + std::erf(x * std::sqrt(0.5F))) + x * (kDensityAtZero * std::exp(-0.5F * x * x));
}

inline float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

/// s + x s (1 − s), s being the sigmoid.
inline float silu_gradient(float x) {
  const float s = sigmoid(x);
  return s + x * s * (1 - s);
}

constexpr float kGeluTanhRoot = 0.79788456F;  // √(2/π)
constexpr float kGeluTanhCubic = 0.044715F;

/// x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))
inline float gelu_tanh(float x) { return x * sigmoid(2 * kGeluTanhRoot * (x + kGeluTanhCubic * x * x * x)); }

inline float gelu_tanh_gradient(float x) {
  const float s = sigmoid(2 * kGeluTanhRoot * (x + kGeluTanhCubic * x * x * x));
  return s + x * s * (1 - s) * 2 * kGeluTanhRoot * (1 + 3 * kGeluTanhCubic * x * x);
}

inline float activate(Activation activation, float y) {
  switch (activation) {
    case Activation::none: break;
    case Activation::relu: return y < 0 ? 0 : y;
    case Activation::gelu: return y * 0.5F * (1 + std::erf(y * std::sqrt(0.5F)));
    case Activation::gelu_tanh: return gelu_tanh(y);
    case Activation::silu: return y * sigmoid(y);
    case Activation::relu6: return y < 0 ? 0 : y > 6 ? 6 : y;
  }
  return y;
}

}  // namespace tessera::kernels
