// What a tile program will cost on a tiled machine, counted before it is compiled: the word that
// plans of whole programs give.
#pragma once

#include <cstdint>
#include <functional>

#include "machine/model/machine.h"
#include "program/program.h"

namespace tessera::ops {

struct Tally {
  program::PhaseTimes cycles;
  uint64_t max_tile_bytes = 0;  ///< of the fullest tile; not below what the compiler needs
};

/// What a tally must be told where control flow and costs depend on metadata.
struct Foresight {
  uint32_t rounds = 0;  ///< times that the body of a `While` runs
  /// Integers of a variable's box that costs may read, row-major, when the body has run `round` times;
  /// null where costs are not to read them. Constants are known without.
  std::function<const std::byte*(program::VariableId, const program::Box&, uint32_t round)> contents;
};

/// Cycles by phase and bytes of the fullest tile. The program's control flow may be sequences,
/// executions, copies, repeats and loops whose rounds are foreseen: what a product's is made of.
Tally tally(const program::Program& program, const machine::Machine& machine,
            const Foresight& foresight = {});

}  // namespace tessera::ops
