// The best packing and the best bound that can be found.
#pragma once

#include <tessera/packing.h>

#include <vector>

#include "packing/watch.h"

namespace tessera::pack {

struct Found {
  std::vector<Strategy> strategies;
  Certificate certificate;
};

/// Packs by column generation, diving and repacking; never worse than longest-pack-first and first-fit
/// decreasing. Stops early when the watch is over.
Found find_best(const Histogram& histogram, const Options& options, Watch& watch);

/// The best bound that column generation finds until the watch is over.
Certificate find_bound(const Histogram& histogram, uint32_t max_per_pack, Watch& watch);

}  // namespace tessera::pack
