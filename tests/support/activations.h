// Activations in float64.
#pragma once

#include <tessera/types.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numbers>

namespace tessera::test {

inline constexpr std::initializer_list<Activation> kActivations = {Activation::none, Activation::relu,
                                                                   Activation::gelu, Activation::gelu_tanh,
                                                                   Activation::silu, Activation::relu6};

inline double activated(Activation activation, double y) {
  switch (activation) {
    case Activation::none: break;
    case Activation::relu: return std::max(y, 0.0);
    case Activation::gelu: return y / 2 * std::erfc(-y / std::numbers::sqrt2);
    case Activation::gelu_tanh:
      return y / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (y + 0.044715 * y * y * y)));
    case Activation::silu: return y / (1 + std::exp(-y));
    case Activation::relu6: return std::clamp(y, 0.0, 6.0);
  }
  return y;
}

}  // namespace tessera::test
