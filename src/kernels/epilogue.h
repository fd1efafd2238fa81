// What a product does to each element of Y on its way out of the registers.
#pragma once

#include <tessera/types.h>

namespace tessera::kernels {

/// y = activation(alpha · (W·x) + beta · y + bias[row]). With beta = 0, Y is never read.
struct Epilogue {
  float alpha = 1.0F;
  float beta = 0.0F;
  const float* bias = nullptr;  ///< one a row of Y, or null
  Activation activation = Activation::none;
};

}  // namespace tessera::kernels
