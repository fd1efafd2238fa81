// The microbenchmark of exchanges (figure 3).
#pragma once

#include "bound/bound_program.h"
#include "program/program.h"

namespace tessera::studies::butterfly {

/// Copies `words` numbers from each of the tiles 0 … senders − 1 to the tile `distance` further, modulo the
/// number of tiles. External variables 0: what is sent, and 1: what arrives, a row per sender.
program::Program exchange_program(uint32_t tiles, uint32_t distance, uint32_t senders, uint32_t words);

/// Runs such a program: whether everything arrives where it should.
bool moves_every_element(const bound::BoundProgram& program);

}  // namespace tessera::studies::butterfly
