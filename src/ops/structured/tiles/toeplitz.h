// Toeplitz and circulant matrices on tiled machines, as dense products. The rows of the matrix, parts of one
// row of diagonals, are sent to the tiles on each call.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ops/dense/dense.h"
#include "ops/plan.h"

namespace tessera::ops {

/// A map of n samples: element (i, j) of the matrix is element places[i − j + inputs − 1] of the parameter, a
/// row. Each is in at most two places.
struct TileToeplitzProblem {
  uint32_t inputs = 0;
  uint32_t outputs = 0;
  std::vector<uint32_t> places = {};
  uint32_t parameters = 0;
  uint32_t n = 0;
  TiledNumbers numbers = {};
  bool sample_rows = false;  ///< x, y and their gradients are [n, features] instead of [features, n]
  bool gradients = false;    ///< dx and the parameter's gradient from x and dy, instead of y from x
  bool input_gradient = true;
  bool parameter_gradient = true;

  static TileToeplitzProblem toeplitz(uint32_t inputs, uint32_t outputs, uint32_t n);
  static TileToeplitzProblem circulant(uint32_t size, uint32_t inputs, uint32_t outputs, uint32_t n);
  uint32_t diagonals() const { return inputs + outputs - 1; }
  /// Rows and columns of a matrix of samples with so many features.
  uint32_t rows(uint32_t features) const { return sample_rows ? n : features; }
  uint32_t cols(uint32_t features) const { return sample_rows ? features : n; }
};

/// Of the products that a problem has.
struct TileToeplitzPartition {
  DensePartition forward = {};
  DensePartition input_gradient = {};
  DensePartition parameter_gradient = {};
};

using TileToeplitzPlan = Plan<TileToeplitzPartition>;
TileToeplitzPlan plan_tile_toeplitz(const TileToeplitzProblem& problem, const machine::Machine& machine);

/// y is dy for gradients.
struct TileToeplitzOperands {
  Operand x;
  Operand y;
  Operand parameter;
  std::optional<Operand> dx = {};
  std::optional<Operand> parameter_gradient = {};
};
program::StepId build_tile_toeplitz(const Builder& builder, const TileToeplitzProblem& problem,
                                    const TileToeplitzPartition& partition,
                                    const TileToeplitzOperands& operands);

}  // namespace tessera::ops
