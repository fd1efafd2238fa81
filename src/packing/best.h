// The fewest packs that can be found, and the sharpest bound.
#pragma once

#include <tessera/packing.h>

#include <vector>

#include "packing/watch.h"

namespace tessera::pack {

struct Found {
  std::vector<Strategy> strategies;
  Certificate certificate;
};

/// Packs by column generation, diving and repacking, and never worse than by longest-pack-first or
/// first-fit decreasing. Ends early when the watch is over.
Found find_best(const Histogram& histogram, const Options& options, Watch& watch);

/// The sharpest bound that column generation finds while the watch is not over.
Certificate find_bound(const Histogram& histogram, uint32_t max_per_pack, Watch& watch);

}  // namespace tessera::pack
