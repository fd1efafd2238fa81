// How structured maps are partitioned over tiles: as chains of passes, or as dense products.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/dense/dense.h"
#include "ops/structured/tiles/pass.h"

namespace tessera::ops {

/// A pass and how it is partitioned.
struct PlannedPass {
  TilePass pass;
  uint32_t block = 0;        ///< of butterflies
  uint32_t first_level = 0;  ///< of the block
  TilePassPartition forward = {};
  TilePassPartition input_gradient = {};  ///< of butterflies, of both gradients
  TilePassPartition weight_gradient = {};
};
/// Of a Kronecker-sparse factor or butterflies; of fastfood the passes of a Hadamard matrix.
struct TileChainPartition {
  std::vector<PlannedPass> passes;
};
std::string to_string(const TileChainPartition& partition);

/// Of the dense products that a circulant or Toeplitz matrix has.
struct TileToeplitzPartition {
  DensePartition forward = {};
  DensePartition input_gradient = {};
  DensePartition parameter_gradient = {};
};

}  // namespace tessera::ops
