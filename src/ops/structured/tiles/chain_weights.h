// Where the weights of passes are in the parameter of a chain.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/structured/tiles/structured.h"

namespace tessera::ops {

/// Weights that follow one another both in a pass and in a row of the parameter.
struct WeightRun {
  uint32_t weight;  ///< of the pass
  uint32_t row;     ///< of the parameter
  uint32_t col;
  uint32_t count;
};

/// Numbers in the matrix of a pair of features.
inline uint32_t pair_matrix(const Butterfly& butterfly) { return butterfly.complex ? 8 : 4; }

/// All weights of a pass, in their order.
std::vector<WeightRun> weight_runs(const Structure& structure, const PlannedPass& planned);

/// Of a level of tied butterflies the weights of a pass that share elements: those of each stack in `copies`
/// rows of stride matrices, one stack's rows below the other's. Rows and columns of runs are there.
struct TiedLevel {
  uint32_t stride;
  uint32_t copies;
  std::vector<WeightRun> runs;
};
TiedLevel tied_level(const Butterfly& butterfly, const PlannedPass& planned, uint32_t level);

}  // namespace tessera::ops
