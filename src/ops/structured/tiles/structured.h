// Structured maps on tiled machines: chains of passes, fastfood on top of them, and Toeplitz matrices.
#pragma once

#include "ops/structured/structured.h"

namespace tessera::ops {

StructuredPlan plan_on_tiles(const StructuredProblem& problem, const machine::Machine& machine);

program::StepId build_on_tiles(const Builder& builder, const StructuredProblem& problem,
                               const StructuredPlan& plan, const StructuredOperands& operands);

}  // namespace tessera::ops
