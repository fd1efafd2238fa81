// Where the weights of passes are in the parameter of a chain.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/structured/tiles/chain.h"

namespace tessera::ops {

/// Weights that follow one another both in a pass and in a row of the parameter.
struct WeightRun {
  uint32_t weight;  ///< of the pass
  uint32_t row;     ///< of the parameter
  uint32_t col;
  uint32_t count;
};

/// All weights of a pass, in their order.
std::vector<WeightRun> weight_runs(const TileChainProblem& problem, const PlannedPass& planned);

}  // namespace tessera::ops
