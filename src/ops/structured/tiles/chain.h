// Structured maps as chains of passes on tiled machines: planned, and added to a program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/structured/tiles/pass.h"

namespace tessera::ops {

/// Butterflies: of each stack `blocks` products of log₂ N factors, whose strides alternate between increasing
/// and decreasing. Their parameter is [stacks, blocks, log₂ N, N/2, 2, 2] in order of application; tied
/// [stacks, N − 1, 2, 2], the factor of stride s from s − 1, which all groups of s pairs share. Complex: each
/// number of the parameter and each feature is a real and an imaginary part.
struct TileButterfly {
  uint32_t levels = 1;  ///< log₂ N
  uint32_t stacks = 1;
  uint32_t blocks = 1;
  bool decreasing = false;  ///< the first block
  bool tied = false;        ///< of one block
  bool complex = false;

  uint32_t width() const { return complex ? 2 : 1; }
  /// Elements of a pair's matrix.
  uint32_t pair_matrix() const { return 4 * width(); }
};

/// A map of n samples: one Kronecker-sparse factor, whose parameter is [a·d, b·c], or
/// butterflies. Inputs that x lacks are zeros, for each stack; further outputs are dropped.
struct TileChainProblem {
  TilePass factor = {};
  std::optional<TileButterfly> butterfly = {};  ///< instead of the factor
  uint32_t inputs = 0;                          ///< and outputs: two for a complex feature
  uint32_t outputs = 0;
  uint32_t n = 0;
  TiledNumbers numbers = {};
  bool sample_rows = false;  ///< x, y and their gradients are [n, features] instead of [features, n]
  bool gradients = false;    ///< dx and the parameter's gradient from x and dy, instead of y from x
  bool input_gradient = true;
  bool parameter_gradient = true;

  /// Rows and columns of the parameter.
  uint32_t parameter_rows() const;
  uint32_t parameter_cols() const;
  /// Rows and columns of a matrix of samples with so many features.
  uint32_t rows(uint32_t features) const { return sample_rows ? n : features; }
  uint32_t cols(uint32_t features) const { return sample_rows ? features : n; }
};

/// A pass and how it is partitioned.
struct PlannedPass {
  TilePass pass;
  uint32_t block = 0;        ///< of butterflies
  uint32_t first_level = 0;  ///< of the block
  TilePassPartition forward = {};
  TilePassPartition input_gradient = {};  ///< of butterflies, of both gradients
  TilePassPartition weight_gradient = {};
};
struct TileChainPartition {
  std::vector<PlannedPass> passes;
};
std::string to_string(const TileChainPartition& partition);

using TileChainPlan = Plan<TileChainPartition>;

/// Merges butterfly factors into as few or as many passes as are fastest. Throws UsageError for impossible
/// sizes, types and machines, and Error if nothing fits.
TileChainPlan plan_tile_chain(const TileChainProblem& problem, const machine::Machine& machine);

/// Where the parameter's elements are multiplied: a mapping for it, with which nothing of it is exchanged
/// before a pass, if only one tile uses each element. Empty for tied butterflies: spread over all tiles.
std::vector<program::MappedBox> chain_parameter_mapping(const TileChainProblem& problem,
                                                        const TileChainPartition& partition);

/// Matrices of features × samples, or samples × features, and of parameter_rows() × parameter_cols(), with
/// any mapping. The forward product reads x and writes y; gradients read x and y, which is dy.
struct TileChainOperands {
  Operand x;
  Operand y;
  Operand parameter;
  std::optional<Operand> dx = {};
  std::optional<Operand> parameter_gradient = {};
};

program::StepId build_tile_chain(const Builder& builder, const TileChainProblem& problem,
                                 const TileChainPartition& partition, const TileChainOperands& operands);

}  // namespace tessera::ops
