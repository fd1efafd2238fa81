// The weight gradient of static sparse products on tiled machines: dW = dY·Xᵀ at the pattern of W.
#pragma once

#include <vector>

#include "machine/machine.h"
#include "ops/tiled_static.h"

namespace tessera::ops {

/// The forward product mirrored: its cut deals out the same blocks and the same columns of n, but a
/// tile gathers rows of X and of dY, computes its blocks for its columns, and sends them to the
/// tiles that own W's values, which add what the parts of the columns found. Where the columns are
/// in one part and W lies in the parts of this very cut, blocks stay where they are computed. X and
/// dY lie spread over all tiles.
struct SampledShape {
  const Pattern& pattern;
  uint32_t n = 0;
  TiledNumbers numbers;
  const ValueLayout& values;  ///< where W lies, hence dW

  /// Whether the cut computes blocks where they are wanted.
  bool stays(const StaticCut& cut) const {
    return cut.col_parts == 1 && values.cut.col_parts == 1 && cut.bands == values.cut.bands &&
           cut.band_tiles == values.cut.band_tiles;
  }
};

/// All cuts worth weighing, as static_cuts() has them.
std::vector<Expected<StaticCut>> sampled_cuts(const SampledShape& shape, Planner planner,
                                              const machine::Machine& machine, const StaticCut& forced);

struct SampledProgram {
  program::Program program;
  program::VariableId dw = 0, x = 0, dy = 0;
};
SampledProgram build_sampled(const SampledShape& shape, const StaticCut& cut,
                             const machine::Machine& machine);

}  // namespace tessera::ops
