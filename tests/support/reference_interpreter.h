// The meaning of a tile program, without machine, mapping, addresses or threads: the oracle for compiler and
// engine.
#pragma once

#include <cstddef>
#include <vector>

#include "program/program.h"

namespace tessera::testing {

/// Contents of every variable by VariableId, each flat and row-major.
using FlatVariables = std::vector<std::vector<std::byte>>;

/// Space for every variable, filled with a byte that no test writes, with constants and initial state in
/// place.
FlatVariables flat_variables(const program::Program& program);

/// Runs the program step by step on one thread with the codelets' reference implementations. State is taken
/// from and left in the variables, so that one run may follow another.
void interpret(const program::Program& program, FlatVariables& variables);

}  // namespace tessera::testing
