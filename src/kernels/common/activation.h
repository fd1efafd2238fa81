// Activations of scalars.
#pragma once

#include <tessera/types.h>

#include <cmath>

namespace tessera::kernels {

inline float activate(Activation activation, float y) {
  switch (activation) {
    case Activation::none: break;
    case Activation::relu: return y < 0 ? 0 : y;
    case Activation::gelu: return y * 0.5F * (1 + std::erf(y * std::sqrt(0.5F)));
  }
  return y;
}

/// Φ(x) + x φ(x), of the standard normal distribution.
inline float gelu_gradient(float x) {
  constexpr float kDensityAtZero = 0.39894228F;  // 1/√(2π)
  return 0.5F * (1 + std::erf(x * std::sqrt(0.5F))) + x * (kDensityAtZero * std::exp(-0.5F * x * x));
}

}  // namespace tessera::kernels
