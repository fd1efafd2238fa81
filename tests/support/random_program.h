// Seeded random tile programs, sound by construction.
#pragma once

#include <cstdint>

#include "program/program.h"

namespace tessera::testing {

/// The memory of a random program's machine.
struct ProgramSpace {
  uint32_t tiles = 1;
  bool has_shared_space = false;
};

/// Variables of all roles with random mappings; vertices over stepped, grid and table boxes;
/// copies with row lists and run-time rows; repeat, while, if and call nested in one another.
/// Every element is written before it is read.
program::Program random_program(uint64_t seed, const ProgramSpace& space);

/// A program that executes one compute set, whose vertices may conflict or not.
program::Program random_compute_set(uint64_t seed, const ProgramSpace& space);

/// Whether two vertices of compute set 0 conflict, or a vertex reads a part of its results through another
/// box, determined element by element.
bool has_conflict(const program::Program& program);

}  // namespace tessera::testing
