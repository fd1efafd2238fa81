// Positions of passes' weights in the parameter of a chain.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/structured/tiles/structured.h"

namespace tessera::ops {

/// Weights that follow one another both in a pass and in a row of the parameter.
struct WeightRun {
  uint32_t weight;  ///< first weight, in the pass
  uint32_t row;     ///< row of the parameter
  uint32_t col;
  uint32_t count;
};

/// Number of values in the matrix of a pair of features.
inline uint32_t pair_matrix(const Butterfly& butterfly) { return butterfly.complex ? 8 : 4; }

/// All weights of a pass, in order.
std::vector<WeightRun> weight_runs(const Structure& structure, const PlannedPass& planned);

/// The weights of a pass at one level of tied butterflies. In a matrix of the weights that share elements,
/// each stack has `copies` rows of `stride` matrices, one stack's rows below the other's. Rows and columns of
/// `runs` refer to that matrix.
struct TiedLevel {
  uint32_t stride;
  uint32_t copies;
  std::vector<WeightRun> runs;
};
TiedLevel tied_level(const Butterfly& butterfly, const PlannedPass& planned, uint32_t level);

}  // namespace tessera::ops
