// How structured maps are partitioned over tiles: as chains of passes, or as dense products.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/dense/dense.h"
#include "ops/structured/tiles/pass.h"

namespace tessera::ops {

/// A pass with its partitions.
struct PlannedPass {
  TilePass pass;
  uint32_t block = 0;        ///< for butterflies: the block of log₂ N factors
  uint32_t first_level = 0;  ///< first of the block's levels
  TilePassPartition forward = {};
  TilePassPartition input_gradient = {};  ///< for butterflies, of both gradients
  TilePassPartition weight_gradient = {};

  const TilePassPartition& partition(TilePassProduct product) const {
    if (product == TilePassProduct::forward) return forward;
    return product == TilePassProduct::weight_gradient ? weight_gradient : input_gradient;
  }
};
/// Partition of a Kronecker-sparse factor or of butterflies; for fastfood, of the passes of a Hadamard
/// matrix.
struct TileChainPartition {
  std::vector<PlannedPass> passes;
};
std::string to_string(const TileChainPartition& partition);

/// Partitions of the dense products of a circulant or Toeplitz matrix.
struct TileToeplitzPartition {
  DensePartition forward = {};
  DensePartition input_gradient = {};
  DensePartition parameter_gradient = {};
};

}  // namespace tessera::ops
