// Sums of partial results, and reductions over an axis of a matrix.
#pragma once

#include <vector>

#include "kernels/map/reduce/axis.h"
#include "ops/map/map.h"

namespace tessera::ops {

/// out[j] = scale · Σ_p partials[p][j]: added in order in FP32, rounded once. partials × elements
/// of `from`, 1 × elements of `to`, each f32, f16 or bf16.
struct ReduceProblem {
  uint32_t partials = 0;
  uint32_t elements = 0;
  Type from = Type::f32;
  Type to = Type::f32;
  float scale = 1;
};

/// Operands "partials", "out".
MapOperation operation_of(const ReduceProblem& problem);

/// out = scale · op of each column of a rows × cols matrix (1 × cols) if over_rows, else of each row (rows ×
/// 1): in FP32, rounded once, in an order that depends on shape, strides and instruction set alone. Over no
/// elements, sums are 0 and the maximum is −∞; a maximum is NaN if any element is. Also for u32 and i32,
/// modulo 2^32 and without a scale.
struct AxisReduceProblem {
  kernels::Reduction op = kernels::Reduction::sum;
  uint32_t rows = 0;
  uint32_t cols = 0;
  bool over_rows = true;
  Type from = Type::f32;
  Type to = Type::f32;
  float scale = 1;

  uint32_t length() const { return over_rows ? rows : cols; }  ///< elements of each sum or maximum
  uint32_t results() const { return over_rows ? cols : rows; }
};

/// Operands "in", "out".
MapOperation operation_of(const AxisReduceProblem& problem);

/// Divides the axis into parts that are reduced simultaneously; then their partial results are reduced. With
/// one part, vertices take whole columns or rows.
struct AxisReducePartition {
  uint32_t parts = 1;
  MapPlan whole = {};  ///< of one part

  bool operator==(const AxisReducePartition& other) const { return parts == other.parts; }
};

using AxisReducePlan = Plan<AxisReducePartition>;

/// The plan for given operands. On tiles, an axis that is longer than the number of tiles, with few results,
/// may be divided into parts: otherwise its columns or rows would lie on few tiles and not fit.
AxisReducePlan plan(const Builder& builder, const AxisReduceProblem& problem,
                    const std::vector<Operand>& operands);
program::StepId build(const Builder& builder, const AxisReduceProblem& problem, const AxisReducePlan& plan,
                      const std::vector<Operand>& operands);

/// out[i] = the sum of in[i · neighbours] … in[i · neighbours + neighbours − 1], in order in FP32, rounded
/// once: rows · neighbours × cols to rows × cols, each f32, f16 or bf16.
struct NeighbourSumProblem {
  uint32_t rows = 0;
  uint32_t cols = 0;
  uint32_t neighbours = 1;
  Type from = Type::f32;
  Type to = Type::f32;
};

/// Operands "in", "out".
MapOperation operation_of(const NeighbourSumProblem& problem);

}  // namespace tessera::ops
