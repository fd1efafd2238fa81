// The epilogue of a product: what is applied to each element of Y before it is stored.
#pragma once

#include <tessera/types.h>

#include <cstdint>

#include "kernels/common/activation.h"
#include "program/codelet.h"

namespace tessera::kernels {

/// y = activation(alpha · (W·x) + beta · y + bias[row]). With beta = 0, Y is never read.
struct Epilogue {
  float alpha = 1.0F;
  float beta = 0.0F;
  const float* bias = nullptr;  ///< one per row of Y, or null
  Activation activation = Activation::none;
};

/// Whether the result is the sums themselves.
inline bool is_plain(const Epilogue& e) {
  return e.alpha == 1.0F && e.beta == 0.0F && e.bias == nullptr && e.activation == Activation::none;
}

/// Whether the result is the sums, plus a bias and what is in Y, within bounds: cheap to compute in
/// registers.
inline bool is_bounded_sum(const Epilogue& e) {
  const bool has_bounds = e.activation == Activation::relu || e.activation == Activation::relu6;
  return e.alpha == 1.0F && (e.beta == 0.0F || e.beta == 1.0F) &&
         (has_bounds || e.activation == Activation::none);
}

/// The biases from a row on, or null.
inline const float* bias_of(const Epilogue& e, uint32_t row) {
  return e.bias == nullptr ? nullptr : e.bias + row;
}

/// One element of Y from its sum, as the references compute it.
inline float finish(const Epilogue& e, uint32_t row, float sum, const float& y) {
  float value = e.alpha * sum;
  if (e.beta != 0) value += e.beta * y;
  if (e.bias != nullptr) value += e.bias[row];
  return activate(e.activation, value);
}

/// The epilogue from a vertex's fields: alpha and beta, and a bias that may be empty. In a dry run fields
/// hold no data.
inline Epilogue epilogue_of(const program::FieldView& scalars, const program::FieldView& bias,
                            int64_t activation) {
  Epilogue epilogue;
  if (scalars.data != nullptr) {
    epilogue.alpha = scalars.as<const float>()[0];
    epilogue.beta = scalars.as<const float>()[1];
  }
  if (!bias.empty()) epilogue.bias = bias.as<const float>();
  epilogue.activation = static_cast<Activation>(activation);
  return epilogue;
}

}  // namespace tessera::kernels
