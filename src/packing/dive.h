// Converts a fractional packing to packs.
#pragma once

#include <tessera/packing.h>

#include <functional>
#include <vector>

#include "packing/column_generation.h"

namespace tessera::pack {

/// Parameters of a dive.
struct DiveOptions {
  uint64_t target = 0;              ///< stop at this number of packs
  double round_up = 0.6;            ///< smallest fraction of a strategy's count that may be rounded up
  double most_work = 0;             ///< limit of ColumnGeneration::work()
  uint64_t give_up = ~uint64_t{0};  ///< stop if fewer packs than this have become impossible
};

struct Dived {
  std::vector<Strategy> packs;
  double work = 0;
};

/// Rounds the fractional packing down, or up if little is missing, solves the relaxation of the remainder,
/// and repeats; at each step longest-pack-first may complete it. Returns the best packing found, also if
/// `stop` ends it.
Dived dive(const Histogram& histogram, uint32_t max_per_pack, const ColumnGeneration& relaxation,
           const DiveOptions& options, const std::function<bool()>& stop);

uint64_t packs_of(const std::vector<Strategy>& strategies);

}  // namespace tessera::pack
