// The passes of the compiler, in the order in which compile() runs them.
#pragma once

#include <string>

#include "compiler/compile.h"
#include "compiler/pieces.h"

namespace tessera::compiler {

/// Creates a piece for every mapped box, finds the piece that holds each field of each vertex, and if none on
/// its tile does, adds a staging buffer and the moves that fill it or write it back.
std::string plan_exchange(Compilation& c);

/// Numbers the schedule and finds the intervals during which each piece is alive. A piece that each pass of a
/// loop overwrites before reading is alive within a pass; a piece that one pass leaves to the next is alive
/// during all passes.
std::string find_liveness(Compilation& c);

/// Counts the bytes of each tile besides data and exchange code: vertices, their code and stacks.
std::string count_code(Compilation& c);

/// Gives every piece an offset in its arena, such that pieces alive at the same time do not overlap.
std::string place(Compilation& c);

/// Determines whether control flow reads memory, and which variables a dry run knows.
std::string find_control(Compilation& c);
void find_runtime_control(Executable& executable);

/// Converts pieces to places: sorted vertices and transfers, as engines run them.
std::string resolve(Compilation& c);

/// Proves the result: every place that a vertex accesses is inside its tile's memory or the shared memory;
/// data on other tiles is exchanged to it and back; pieces alive at the same time do not overlap. Throws
/// Error naming the first fault.
std::string check(Compilation& c);

/// Counts cycles by phase, for which nothing needs an address.
std::string count_cycles(Compilation& c);

/// Counts bytes by category.
std::string count_bytes(Compilation& c);

/// Counts both.
std::string account(Compilation& c);

}  // namespace tessera::compiler
