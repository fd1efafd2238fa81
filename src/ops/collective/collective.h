// Sums over the replicas of a program, by the algorithm that is faster for the size of their data.
#pragma once

#include <span>
#include <string>

#include "machine/model/machine.h"
#include "program/program.h"

namespace tessera::ops {

/// Each variable becomes its sum over all replicas, in one collective. `replica` is the part of the machine
/// on which the first replica runs. Without replicas nothing is added, and the step is none.
program::StepId all_reduce(program::Program& program, const machine::Machine& replica, std::string name,
                           std::span<const program::VariableId> variables);

}  // namespace tessera::ops
