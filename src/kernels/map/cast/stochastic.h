// The random numbers of a stochastic cast, and its SIMD form.
#pragma once

#include <cstdint>

#include "kernels/common/draws.h"
#include "kernels/common/element_order.h"

namespace tessera::kernels {

/// Element (r, c) is rounded by word order.at(row + r, col + c) of a stream.
struct StochasticCast {
  Draws draws = {};
  ElementOrder order = {};
  uint64_t row = 0;
  uint64_t col = 0;

  uint64_t element(uint64_t r, uint64_t c) const { return order.at(row + r, col + c); }
};

/// out = in, rounded. Fields of one shape. Fast if a step of the order is 1.
void apply_stochastic_cast(StochasticCast cast, program::FieldView in, program::FieldView out);
/// The same, one element after the other.
void stochastic_cast_by_elements(const StochasticCast& cast, const program::FieldView& in,
                                 const program::FieldView& out);

}  // namespace tessera::kernels
