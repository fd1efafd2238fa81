// Sums of partial results.
#pragma once

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

/// Throws UsageError for a type that is not floating-point.
MapPlan plan(const ReduceProblem& problem, const machine::Machine& machine);

/// Adds external variables "partials", "out", and the step.
BuiltOperation build(program::Program& program, const ReduceProblem& problem, const MapPlan& plan,
                     const machine::Machine& machine);

}  // namespace tessera::ops
