// Cycles of products with groups on a tile.
#pragma once

#include <tessera/types.h>

#include <cstdint>

#include "machine/model/machine.h"

namespace tessera::kernels {

/// Cycles of a tile for `groups` products of outputs × terms weights and n columns; `transposed` if the
/// weights of an output are not contiguous.
double kronecker_product_cycles(const machine::Machine& m, Type type, uint32_t groups, uint32_t outputs,
                                uint32_t terms, uint32_t n, bool transposed);
double kronecker_weight_gradient_cycles(const machine::Machine& m, Type type, uint32_t groups,
                                        uint32_t outputs, uint32_t inputs, uint32_t n);

struct ButterflyPassSize {
  uint32_t groups = 0;
  uint32_t levels = 0;
  uint32_t width = 1;  ///< 2: complex numbers
};
double butterfly_pass_cycles(const machine::Machine& m, Type type, const ButterflyPassSize& size, uint32_t n);
double butterfly_pass_gradients_cycles(const machine::Machine& m, Type type, const ButterflyPassSize& size,
                                       uint32_t n);

}  // namespace tessera::kernels
