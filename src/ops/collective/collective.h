// What the replicas of a program exchange, by the algorithm that is fastest for the size of the data.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "machine/model/machine.h"
#include "program/program.h"

namespace tessera::ops {

/// Adds one collective that replaces each variable by its sum over all replicas, or over the replicas
/// of its own group of `group`. `replica` is the part of the machine on which the first replica runs. Without
/// replicas it adds nothing and returns kNoStep.
program::StepId all_reduce(program::Program& program, const machine::Machine& replica, std::string name,
                           std::span<const program::VariableId> variables, uint32_t group = 0);

/// Adds several collectives. Variables of one list are complete at the same time, and the lists are in the
/// order of completion. Neighbouring lists share a collective until it has a substantial part of all elements
/// and, on tiled machines, its links are busy for several times as long as tiles, so that more of its time
/// can be hidden behind other work than it adds. All use the algorithm that is fastest for one collective of
/// all variables, so that sums have the same bits as there. Without replicas it adds nothing.
std::vector<program::StepId> all_reduces(program::Program& program, const machine::Machine& replica,
                                         const std::string& name,
                                         std::span<const std::vector<program::VariableId>> lists,
                                         uint32_t group = 0);

/// Whether an all-reduce of the variables keeps links busy for several times as long as tiles, as
/// all_reduces() requires of each collective; on hosts, whether there is an all-reduce.
bool hides_well(const program::Program& program, const machine::Machine& replica,
                std::span<const program::VariableId> variables);

/// A variable, and the part of it that each replica has.
struct Sharded {
  program::VariableId whole = 0;
  program::VariableId part = 0;
};
/// The mapping of a part, a matrix of one row, beside a variable: one chunk of each of its boxes.
std::vector<program::MappedBox> mapping_of_part(const program::Variable& whole, uint32_t replicas);

/// As all_reduces(): each part becomes the replica's own chunk of the sums. The contents of the whole
/// variables are lost.
std::vector<program::StepId> reduce_scatters(program::Program& program, const machine::Machine& replica,
                                             const std::string& name,
                                             std::span<const std::vector<Sharded>> lists);

/// Adds one collective of several variables: each whole variable is assembled from the replicas' parts; each
/// part is taken from a variable that all replicas have.
program::StepId all_gather(program::Program& program, const machine::Machine& replica, std::string name,
                           std::span<const Sharded> variables);
program::StepId scatter(program::Program& program, const machine::Machine& replica, std::string name,
                        std::span<const Sharded> variables);

}  // namespace tessera::ops
