// Collectives of the replicas of a program, by the algorithm that is faster for the size of their data.
#pragma once

#include <span>
#include <string>

#include "machine/model/machine.h"
#include "program/program.h"

namespace tessera::ops {

/// A variable, and what this replica has of it: chunk r of each of its boxes in replica r.
struct SharedVariable {
  program::VariableId whole = 0;
  program::VariableId part = 0;
};

/// Each variable becomes its sum over all replicas, in one collective. `replica` is the part of the machine
/// on which the first replica runs. Without replicas nothing is added, and the step is none.
program::StepId all_reduce(program::Program& program, const machine::Machine& replica, std::string name,
                           std::span<const program::VariableId> variables);

/// The parts become the replica's own chunks of the sums; the whole variables are used up. Throws Error for
/// boxes that replicas cannot share equally, and for parts that do not lie beside them.
program::StepId reduce_scatter(program::Program& program, const machine::Machine& replica, std::string name,
                               std::span<const SharedVariable> variables);
/// The whole variables become the parts of all replicas. Throws as reduce_scatter() does.
program::StepId all_gather(program::Program& program, const machine::Machine& replica, std::string name,
                           std::span<const SharedVariable> variables);

/// A variable for one replica's chunks of another: its boxes lie beside those of `whole`. Throws Error for
/// boxes that replicas cannot share equally.
program::VariableId add_part(program::Program& program, program::VariableId whole, std::string name,
                             program::Role role);

}  // namespace tessera::ops
