// Naive dense products on tiles: one output element per vertex, and blocks (table 2).
#pragma once

#include "program/program.h"
#include "studies/paper/study.h"

namespace tessera::studies::butterfly {

/// C = A · B, all N × N in FP32, as a program with external variables 0: A, 1: Bᵀ (or B), 2: C.
struct FirstProgram {
  program::Program program;
  bool is_b_transposed = false;
};

/// Each element of C is a vertex of one worker, on the tile that holds it; C is spread in runs of equal
/// length, A by rows and B by columns. The rows and columns that a tile's elements need are brought to it
/// before the only superstep, all at once.
FirstProgram naive_product(uint32_t size, uint32_t tiles);

/// Blocks of A, B and C on a square grid of tiles, `grid` × `grid`. In each of `grid` steps, the tile of a
/// block of C copies the block of A and the block of B that it needs next to temporaries, and one worker
/// multiplies them. The size must be a multiple of the grid.
FirstProgram blocked_product(uint32_t size, uint32_t grid);

/// Estimates a naive product, and if the setting asks for it and it is small, executes it and compares it
/// with float64.
Result run_naive(uint32_t size, const Setting& setting);
Result run_blocked(uint32_t size, const Setting& setting);

}  // namespace tessera::studies::butterfly
