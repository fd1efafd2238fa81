// What the planners of products on tiled machines share.
#pragma once

#include <tessera/types.h>

#include <cstdint>

#include "machine/model/machine.h"
#include "ops/product_problem.h"
#include "program/codelet.h"

namespace tessera::ops {

/// The published planners' share of a tile's memory for temporaries.
inline constexpr double kPublishedMemoryFraction = 0.6;

/// A cut, and what it is expected to cost.
template <class Partition>
struct Expected {
  Partition partition;
  program::PhaseTimes cycles;
  double bytes = 0;  ///< of the fullest tile
};

/// Expected cycles of adding `partials` arrays of `elements` on a tile.
double reduce_cycles(const machine::Machine& m, TiledNumbers numbers, double partials, double elements);

}  // namespace tessera::ops
