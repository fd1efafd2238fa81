// The grid of a dynamic product that the vendor's library takes.
#pragma once

#include <optional>

#include "machine/model/machine.h"
#include "ops/sparse/dynamic/dynamic.h"

namespace tessera::ops {

/// The grid that PopLibs' planner of dynamic products (SDK 3.4) finds fastest by its own estimate, and the
/// buckets that it gives each tile. PopLibs plans Y and dX together, takes patterns to be uniform, and counts
/// a cycle for each partial sum that is set to 0. None if no grid keeps its temporaries to the fraction of
/// memory that it aims at; PopLibs then takes one that does not, with a warning. Numbers of parts of `forced`
/// that are not 0 are fixed.
std::optional<DynamicTiling> vendor_tiling(const DynamicShape& shape, const machine::Machine& machine,
                                           const DynamicTiling& forced = {0, 0, 0});

}  // namespace tessera::ops
