// Cycles of products on a tile.
#pragma once

#include <tessera/types.h>

#include <cstdint>

#include "machine/model/machine.h"

namespace tessera::kernels {

/// Cycles of a formula that is bound by the multipliers, on a machine with faster or slower multipliers.
double multiplier_cycles(const machine::Machine& m, Type type, double cycles);

/// The kernel's block size, 4, 8 or 16, from which b × b blocks are composed.
uint32_t kernel_size(uint32_t block_size);

/// Cost of b × b blocks for a tile with n columns: a fixed part, and cycles per block row and per block.
/// Sizes other than 4, 8 and 16 are composed of these.
struct BlockRates {
  double start = 0;
  double per_row = 0;
  double per_block = 0;
};
BlockRates block_rates(const machine::Machine& m, Type type, uint32_t block_size, uint32_t n,
                       bool transposed = false);

/// Cost of blocks of dY·Xᵀ, with n columns.
BlockRates sddmm_block_rates(const machine::Machine& m, Type type, uint32_t block_size, uint32_t n);

/// Cost of single elements for one worker with n columns: a fixed part, and cycles per row and per element of
/// a row beyond its first. A tile takes workers × its slowest worker.
struct ElementRates {
  double start = 0;
  double per_row = 0;
  double per_further = 0;
};
ElementRates element_rates(Type type, uint32_t n);

/// Cost of elements of dY·Xᵀ, with n columns.
ElementRates sddmm_element_rates(Type type, uint32_t n);

/// Cycles of a tile for a dense product of m × k by k × n.
double dense_cycles(const machine::Machine& m, Type type, uint32_t rows, uint32_t inner, uint32_t cols);

/// Cycles of a tile for writing the transpose of a matrix of `elements` elements: the multipliers take
/// operands only in storage order.
double transpose_cycles(const machine::Machine& m, Type type, double elements);

}  // namespace tessera::kernels
