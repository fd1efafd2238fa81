// Fastfood on tiled machines: S·H·G·Π·H·B, whose Hadamard matrices H are passes of butterfly factors.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ops/structured/tiles/chain.h"

namespace tessera::ops {

/// A map of n samples. Parameters s, g and b are [stacks, N], N = 2^levels; the permutation is that of each
/// stack, as the places from which it takes. Inputs that x lacks are zeros; further outputs are dropped.
struct TileFastfoodProblem {
  uint32_t levels = 1;
  uint32_t stacks = 1;
  std::vector<uint32_t> permutation = {};
  uint32_t inputs = 0;
  uint32_t outputs = 0;
  uint32_t n = 0;
  TiledNumbers numbers = {};
  bool sample_rows = false;  ///< x, y and their gradients are [n, features] instead of [features, n]
  bool gradients = false;    ///< dx and the parameters' gradients from x and dy, instead of y from x
  bool input_gradient = true;
  bool parameter_gradients = true;

  uint32_t size() const { return 1U << levels; }
  uint32_t features() const { return stacks << levels; }
  /// Rows and columns of a matrix of samples with so many features.
  uint32_t rows(uint32_t of) const { return sample_rows ? n : of; }
  uint32_t cols(uint32_t of) const { return sample_rows ? of : n; }
};

/// The passes of a Hadamard matrix.
using TileFastfoodPlan = Plan<TileChainPartition>;
TileFastfoodPlan plan_tile_fastfood(const TileFastfoodProblem& problem, const machine::Machine& machine);

/// Parameters and their gradients in the order s, g, b; y is dy for gradients.
struct TileFastfoodOperands {
  Operand x;
  Operand y;
  std::vector<Operand> parameters;
  std::optional<Operand> dx = {};
  std::vector<Operand> parameter_gradients = {};
};
program::StepId build_tile_fastfood(const Builder& builder, const TileFastfoodProblem& problem,
                                    const TileChainPartition& partition,
                                    const TileFastfoodOperands& operands);

}  // namespace tessera::ops
