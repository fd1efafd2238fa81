// Structured maps on hosts: one vertex for each part of the batch.
#pragma once

#include "ops/map/map.h"
#include "ops/structured/structured.h"

namespace tessera::ops {

StructuredPlan plan_on_host(const StructuredProblem& problem, const machine::Machine& machine);

program::StepId build_on_host(const Builder& builder, const StructuredProblem& problem,
                              const BatchPartition& partition, const StructuredOperands& operands);

/// The operation on a vertex's samples for a bias: y = y + bias, or the bias's gradient from dy.
MapOperation bias_operation(const StructuredProblem& problem);

}  // namespace tessera::ops
