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

}  // namespace tessera::kernels
