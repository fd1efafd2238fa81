#include "ops/map/boxes_on_tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tessera::ops {

BoxesOnTiles::BoxesOnTiles(MapPartition partition) : partition_(std::move(partition)) {
  for (uint32_t i = 0; i < count(); ++i) {
    const program::TileId tile = boxes()[i].tile;
    if (by_tile_.empty() || by_tile_.back().tile != tile) by_tile_.push_back({i, i, tile});
    by_tile_.back().end = i + 1;
  }
}

std::vector<BoxesOnTiles::Group> BoxesOnTiles::groups(uint32_t number) const {
  std::vector<Group> groups;
  for (uint32_t g = 0; g < number; ++g) {
    const Group& first = by_tile_[uint64_t{tiles()} * g / number];
    const Group& last = by_tile_[uint64_t{tiles()} * (g + 1) / number - 1];
    groups.push_back({first.begin, last.end, last.tile});
  }
  return groups;
}

std::vector<uint32_t> BoxesOnTiles::numbers_of_groups() const {
  constexpr uint32_t kLeast = 8, kMost = 128;
  std::vector<uint32_t> numbers;
  if (tiles() > 0) numbers.push_back(0);
  for (uint32_t number = kLeast; number <= std::min(kMost, tiles() / 2); number *= 2)
    numbers.push_back(number);
  return numbers;
}

std::string groups_text(uint32_t number) {
  return number == 0 ? "" : fmt::format(", joined in {} groups of tiles", number);
}

}  // namespace tessera::ops
