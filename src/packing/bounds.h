// Lower bounds from a single pass over the histogram.
#pragma once

#include <tessera/packing.h>

namespace tessera::pack {

/// The best of two families of weights (dual feasible functions) with a threshold t up to half the maximum L.
/// A sequence shorter than t weighs 0; one longer than L − t, which shares its pack only with sequences of
/// weight 0, weighs as much as a pack can; other sequences weigh their length, out of L (bound L2 of Martello
/// and Toth 1990), or 1, out of the min(D, ⌊L/t⌋) that fit in a pack; for t = 1 the latter is the bound from
/// the depth.
Certificate threshold_bound(const Histogram& histogram, uint32_t max_per_pack);

}  // namespace tessera::pack
