// Common parts of the planners of products on tiled machines.
#pragma once

#include <tessera/types.h>

#include <cstdint>

#include "machine/model/machine.h"
#include "ops/product_problem.h"
#include "program/codelet.h"

namespace tessera::ops {

/// The published planners' fraction of a tile's memory for temporaries.
inline constexpr double kPublishedMemoryFraction = 0.6;

/// A partition, and its expected cost.
template <class Partition>
struct Expected {
  Partition partition;
  program::PhaseTimes cycles;
  double bytes = 0;  ///< of the fullest tile
};

/// Expected cycles of adding `partials` arrays of `elements` on a tile.
double reduce_cycles(const machine::Machine& m, TiledNumbers numbers, double partials, double elements);

}  // namespace tessera::ops
