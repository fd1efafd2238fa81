// Reductions over all elements of a matrix.
#pragma once

#include <string>
#include <vector>

#include "kernels/map/reduce/axis.h"
#include "ops/map/map.h"

namespace tessera::ops {

/// out (1 × 1) = scale · op of all elements of a rows × cols matrix, as for AxisReduceProblem.
struct ReduceAllProblem {
  kernels::Reduction op = kernels::Reduction::sum;
  uint32_t rows = 0;
  uint32_t cols = 0;
  Type from = Type::f32;
  Type to = Type::f32;
  float scale = 1;

  bool operator==(const ReduceAllProblem&) const = default;
};

/// In what order a matrix is reduced.
struct ReduceAllPartition {
  /// On each tile what lies there, in place; otherwise over the longer axis, then over the other one.
  bool in_place = false;
  /// In place: the number of groups of neighbouring tiles that join their results before these are joined, or
  /// 0.
  uint32_t groups = 0;

  bool operator==(const ReduceAllPartition&) const = default;
};

std::string to_string(const ReduceAllPartition& partition);

using ReduceAllPlan = Plan<ReduceAllPartition>;

/// Operands "in", "out". In place nothing of the matrix is exchanged, only partial results. On a host, there
/// is one partition, without a cost: over one axis, then the other.
ReduceAllPlan plan(const Builder& builder, const ReduceAllProblem& problem,
                   const std::vector<Operand>& operands);
program::StepId build(const Builder& builder, const ReduceAllProblem& problem, const ReduceAllPlan& plan,
                      const std::vector<Operand>& operands);

}  // namespace tessera::ops
