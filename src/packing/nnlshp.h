// Non-negative least squares histogram packing.
#pragma once

#include <tessera/packing.h>

#include <functional>
#include <vector>

namespace tessera::pack {

/// Packs by the full packs of at most three sequences whose sequences come closest to the histogram
/// (Krell, Kosec, Perez and Fitzgibbon 2021), their counts rounded. What is left goes into the
/// remaining room, longest-pack-first. When `stop` ends the search, from the counts so far.
std::vector<Strategy> least_squares_packing(const Histogram& histogram, const std::function<bool()>& stop);

/// Most sequences in one of its packs.
inline constexpr uint32_t kLeastSquaresDepth = 3;

/// The longest maximum that it can be used for; the number of full packs grows with the square.
inline constexpr uint32_t kLongestLeastSquares = 2048;

}  // namespace tessera::pack
