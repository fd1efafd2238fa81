// The microbenchmark of exchanges (figure 3).
#pragma once

#include "bound/bound_program.h"
#include "program/program.h"

namespace tessera::studies::butterfly {

/// Copies `words` numbers from each of the tiles 0 … senders − 1 to the tile `distance` further, modulo the
/// number of tiles. External variables are 0: the sent numbers, and 1: the received numbers, with a row per
/// sender.
program::Program exchange_program(uint32_t tiles, uint32_t distance, uint32_t senders, uint32_t words);

/// Runs an exchange program; returns whether all numbers arrive at the right tiles.
bool moves_every_element(const bound::BoundProgram& program);

}  // namespace tessera::studies::butterfly
