// Sums over the replicas of a program, by the algorithm that is fastest for the size of the data.
#pragma once

#include <span>
#include <string>

#include "machine/model/machine.h"
#include "program/program.h"

namespace tessera::ops {

/// Adds one collective that replaces each variable by its sum over all replicas. `replica` is the part of the
/// machine on which the first replica runs. Without replicas it adds nothing and returns kNoStep.
program::StepId all_reduce(program::Program& program, const machine::Machine& replica, std::string name,
                           std::span<const program::VariableId> variables);

}  // namespace tessera::ops
