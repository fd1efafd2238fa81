// Packing in one pass over the histogram, in descending order of lengths.
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

/// Shortest-pack-first histogram packing (Krell, Kosec, Perez and Fitzgibbon 2021): each sequence
/// into the open pack with the most room.
std::vector<Strategy> shortest_pack_first(const Histogram& histogram, uint32_t max_per_pack);

/// Longest-pack-first histogram packing, from the same source: each sequence into the open pack
/// with the least room that suffices, as often as it fits. Best-fit decreasing on a histogram. The
/// packs of `begun` are open, too, as far as they have room, and part of the result.
std::vector<Strategy> longest_pack_first(const Histogram& histogram, uint32_t max_per_pack,
                                         const std::vector<Strategy>& begun = {});

/// First-fit decreasing: each sequence into the first pack, in the order in which they were opened,
/// that has room.
std::vector<Strategy> first_fit_decreasing(const Histogram& histogram, uint32_t max_per_pack);

/// Next-fit decreasing: each sequence into the pack opened last if it has room, else into a new
/// one.
std::vector<Strategy> next_fit_decreasing(const Histogram& histogram, uint32_t max_per_pack);

}  // namespace tessera::pack
