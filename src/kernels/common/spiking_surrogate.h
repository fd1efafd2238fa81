// Surrogate derivatives of single distances from the threshold.
#pragma once

#include <tessera/spiking.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tessera::kernels {

template <class Real>
Real derivative_of(const Surrogate& of, Real x) {
  const Real k = of.slope, scale = of.scale;
  switch (of.family) {
    case SurrogateFamily::superspike:
    case SurrogateFamily::fast_sigmoid: return scale / std::pow(k * std::abs(x) + 1, Real{2});
    case SurrogateFamily::arctan:
      return scale * k / 2 / (1 + std::pow(std::numbers::pi_v<Real> / 2 * k * x, Real{2}));
    case SurrogateFamily::triangle: return scale * std::max(Real{0}, 1 - k * std::abs(x));
    case SurrogateFamily::sigmoid: {
      const Real s = 1 / (1 + std::exp(-k * x));
      return scale * k * s * (1 - s);
    }
    case SurrogateFamily::boxcar: return std::abs(x) < Real{0.5} / k ? scale * k : 0;
  }
  return 0;
}

}  // namespace tessera::kernels
