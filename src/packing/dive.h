// From a fractional packing to packs.
#pragma once

#include <tessera/packing.h>

#include <functional>
#include <vector>

#include "packing/column_generation.h"

namespace tessera::pack {

/// How a dive rounds.
struct DiveOptions {
  uint64_t target = 0;              ///< packs that are as good as any
  double round_up = 0.6;            ///< the least fraction of a strategy's count that may become a pack
  double most_work = 0;             ///< of ColumnGeneration::work()
  uint64_t give_up = ~uint64_t{0};  ///< a dive that cannot have fewer packs than this ends
};

struct Dived {
  std::vector<Strategy> packs;
  double work = 0;
};

/// Rounds the fractional packing down, and up where that misses little, solves the relaxation of
/// what is left anew, and so on; at each step longest-pack-first may end it. The best packing on
/// the way. When `stop` ends it, the best so far.
Dived dive(const Histogram& histogram, uint32_t max_per_pack, const ColumnGeneration& relaxation,
           const DiveOptions& options, const std::function<bool()>& stop);

uint64_t packs_of(const std::vector<Strategy>& strategies);

}  // namespace tessera::pack
