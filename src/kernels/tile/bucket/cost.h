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

/// Cycles for n columns, without zeroing Y.
double bucket_cycles(const machine::Machine& m, Type type, uint32_t block_size, uint32_t n,
                     const BucketWork& work);

/// Cycles to set this many bytes to 0.
double fill_cycles(const machine::Machine& m, double bytes);

}  // namespace tessera::kernels
