// Stochastic rounding of partial sums.
#pragma once

#include "ops/product_problem.h"
#include "program/program.h"

namespace tessera::ops {

/// Makes vertices of products, on tiles numbered from 0, round their results as the numbers specify, each by
/// random numbers of its own tile. Computing a product again from the same operands rounds equally.
void round_partials(const TiledNumbers& numbers, program::ComputeSet& set);

}  // namespace tessera::ops
