// Cycles of dynamic sparse products on a tile.
#pragma once

#include <tessera/types.h>

#include <cstdint>

#include "machine/model/machine.h"

namespace tessera::kernels {

/// The work of a tile on a bucket. For single elements, rows and blocks are counted for its slowest worker.
struct BucketWork {
  double subgroups = 0;
  double own = 0;     ///< subgroups of the tile's partition
  double rows = 0;    ///< rows of these subgroups
  double blocks = 0;  ///< blocks of these subgroups
};

/// The block size of PopLibs' codelets, 4, 8 or 16, from which blocks are composed: FP32 has no 16.
uint32_t bucket_kernel_size(Type type, uint32_t block_size);

/// Cycles for n columns of X, of `type`, with partial sums of another, without zeroing Y.
double bucket_cycles(const machine::Machine& m, Type type, Type partials, uint32_t block_size, uint32_t n,
                     const BucketWork& work);

/// Cycles to set this many bytes to 0.
double fill_cycles(const machine::Machine& m, double bytes);

}  // namespace tessera::kernels
