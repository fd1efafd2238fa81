// Non-negative least squares histogram packing.
#pragma once

#include <tessera/packing.h>

#include <functional>
#include <vector>

namespace tessera::pack {

/// Packs by the full packs of at most three sequences whose counts, rounded, come closest to the histogram
/// (Krell, Kosec, Perez and Fitzgibbon 2021). The rest goes into the remaining room, longest-pack-first. If
/// `stop` ends the search, continues with the counts so far.
std::vector<Strategy> least_squares_packing(const Histogram& histogram, const std::function<bool()>& stop);

/// Maximum number of sequences in a pack of this algorithm.
inline constexpr uint32_t kLeastSquaresDepth = 3;

/// The largest maximum length that it supports; the number of full packs grows quadratically.
inline constexpr uint32_t kLongestLeastSquares = 2048;

}  // namespace tessera::pack
