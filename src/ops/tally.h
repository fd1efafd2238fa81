// What a tile program will cost on a tiled machine, counted before it is compiled: the word that
// plans of whole programs give.
#pragma once

#include <cstdint>

#include "machine/machine.h"
#include "program/program.h"

namespace tessera::ops {

struct Tally {
  program::PhaseTimes cycles;
  uint64_t max_tile_bytes = 0;  ///< of the fullest tile; not below what the compiler needs
};

/// Cycles by phase and bytes of the fullest tile. The program's control flow may be sequences,
/// executions, copies and repeats: what a product's is made of.
Tally tally(const program::Program& program, const machine::Machine& machine);

}  // namespace tessera::ops
