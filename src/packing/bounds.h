// Lower bounds that a pass over the histogram gives.
#pragma once

#include <tessera/packing.h>

namespace tessera::pack {

/// The best of two families of weights (dual feasible functions), one of each for a threshold t up
/// to half the maximum L. A sequence shorter than t weighs nothing; one longer than L − t, beside
/// which no other one of weight fits, weighs as much as a pack can; one between weighs its length,
/// of L (bound L2 of Martello and Toth 1990), or 1 of min(D, ⌊L/t⌋) that fit in a pack, which with
/// t = 1 is the bound of the depth.
Certificate threshold_bound(const Histogram& histogram, uint32_t max_per_pack);

}  // namespace tessera::pack
