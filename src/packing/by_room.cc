// Shortest-pack-first and longest-pack-first: choose packs by their room.
#include <algorithm>

#include "packing/greedy.h"
#include "packing/open_packs.h"

namespace tessera::pack {
namespace {

/// As many copies of the length per pack as room, depth and the remaining sequences allow.
uint32_t copies_that_fit(const PackGroup& group, uint32_t length, uint32_t depth_limit, uint64_t sequences) {
  const uint32_t most = std::min(group.room / length, depth_limit - group.depth);
  return static_cast<uint32_t>(std::min<uint64_t>(most, sequences));
}

}  // namespace

std::vector<Strategy> shortest_pack_first(const Histogram& histogram, uint32_t max_per_pack) {
  OpenPacks packs(histogram.max_length(), depth_limit(max_per_pack));
  for (uint32_t length = histogram.max_length(); length > 0; --length) {
    uint64_t left = histogram.counts[length];
    while (left > 0) {
      const std::optional<uint32_t> room = packs.most_room();
      if (!room || *room < length) {
        packs.fill(packs.fresh(), left, length, 1);
        break;
      }
      PackGroup group = packs.take(*room);
      const uint64_t count = std::min(group.count, left);
      group.count -= count;
      if (group.count > 0) packs.put_back(group);
      packs.fill(group, count, length, 1);
      left -= count;
    }
  }
  return packs.strategies();
}

std::vector<Strategy> longest_pack_first(const Histogram& histogram, uint32_t max_per_pack,
                                         const std::vector<Strategy>& begun) {
  OpenPacks packs(histogram.max_length(), depth_limit(max_per_pack));
  for (const Strategy& strategy : begun) packs.open(strategy);
  for (uint32_t length = histogram.max_length(); length > 0; --length) {
    uint64_t left = histogram.counts[length];
    while (left > 0) {
      const std::optional<uint32_t> room = packs.least_room(length);
      PackGroup group = room ? packs.take(*room) : packs.fresh();
      const uint32_t copies = copies_that_fit(group, length, packs.depth_limit(), left);
      uint64_t count = left / copies;
      if (room) {
        count = std::min(group.count, count);
        group.count -= count;
        if (group.count > 0) packs.put_back(group);
      }
      packs.fill(group, count, length, copies);
      left -= count * copies;
    }
  }
  return packs.strategies();
}

}  // namespace tessera::pack
