// Elementwise functions of one or two matrices.
#pragma once

#include "kernels/map/elementwise/elementwise.h"
#include "ops/map/map.h"

namespace tessera::ops {

/// out = op(in), both rows × cols of one type: f32, f16 or bf16.
struct UnaryProblem {
  kernels::Unary op = kernels::Unary::relu;
  Type type = Type::f32;
  uint32_t rows = 0;
  uint32_t cols = 0;
  float factor = 1;  ///< of Unary::scale
};

/// out = op(a, b), all rows × cols of one type: f32, f16 or bf16.
struct BinaryProblem {
  kernels::Binary op = kernels::Binary::add;
  Type type = Type::f32;
  uint32_t rows = 0;
  uint32_t cols = 0;
};

/// Throws UsageError for a type that is not floating-point.
MapPlan plan(const UnaryProblem& problem, const machine::Machine& machine);
MapPlan plan(const BinaryProblem& problem, const machine::Machine& machine);

/// Adds external variables "in", "out" or "a", "b", "out", and the step.
BuiltOperation build(program::Program& program, const UnaryProblem& problem, const MapPlan& plan,
                     const machine::Machine& machine);
BuiltOperation build(program::Program& program, const BinaryProblem& problem, const MapPlan& plan,
                     const machine::Machine& machine);

}  // namespace tessera::ops
