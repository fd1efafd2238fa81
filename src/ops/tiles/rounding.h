// Stochastic rounding of partial sums.
#pragma once

#include "ops/product_problem.h"
#include "program/program.h"

namespace tessera::ops {

/// Lets vertices of products, on tiles numbered from 0, round what they compute as the numbers say, each by
/// random numbers of its tile. A product that is computed again, from the same operands, rounds alike.
void round_partials(const TiledNumbers& numbers, program::ComputeSet& set);

}  // namespace tessera::ops
