// Surrogate derivatives of single distances from the threshold.
#pragma once

#include <tessera/spiking.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tessera::kernels {

inline float derivative_of(const Surrogate& of, float x) {
  const float k = of.slope;
  switch (of.family) {
    case SurrogateFamily::superspike:
    case SurrogateFamily::fast_sigmoid: return of.scale / std::pow(k * std::abs(x) + 1, 2.0F);
    case SurrogateFamily::arctan:
      return of.scale * k / 2 / (1 + std::pow(std::numbers::pi_v<float> / 2 * k * x, 2.0F));
    case SurrogateFamily::triangle: return of.scale * std::max(0.0F, 1 - k * std::abs(x));
    case SurrogateFamily::sigmoid: {
      const float s = 1 / (1 + std::exp(-k * x));
      return of.scale * k * s * (1 - s);
    }
    case SurrogateFamily::boxcar: return std::abs(x) < 0.5F / k ? of.scale * k : 0;
  }
  return 0;
}

}  // namespace tessera::kernels
