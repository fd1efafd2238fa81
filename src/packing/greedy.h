// Packing in one pass over the histogram, by descending length.
#pragma once

#include <tessera/packing.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace tessera::pack {

/// Options::max_per_pack as a number to compare with.
inline uint32_t depth_limit(uint32_t max_per_pack) {
  return max_per_pack == 0 ? std::numeric_limits<uint32_t>::max() : max_per_pack;
}

/// Shortest-pack-first histogram packing (Krell, Kosec, Perez and Fitzgibbon 2021): each sequence goes into
/// the emptiest open pack.
std::vector<Strategy> shortest_pack_first(const Histogram& histogram, uint32_t max_per_pack);

/// Longest-pack-first histogram packing, from the same source: each sequence goes into the fullest open pack
/// that has room, as often as it fits. Best-fit decreasing on a histogram. The packs of `begun` are also
/// open, as far as they have room, and part of the result.
std::vector<Strategy> longest_pack_first(const Histogram& histogram, uint32_t max_per_pack,
                                         const std::vector<Strategy>& begun = {});

/// First-fit decreasing: each sequence goes into the first pack, in opening order, that has room.
std::vector<Strategy> first_fit_decreasing(const Histogram& histogram, uint32_t max_per_pack);

/// Next-fit decreasing: each sequence goes into the last opened pack if it has room, otherwise into a new
/// one.
std::vector<Strategy> next_fit_decreasing(const Histogram& histogram, uint32_t max_per_pack);

}  // namespace tessera::pack
