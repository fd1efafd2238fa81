// Operations that compute partial results where the boxes of an operand lie, and combine them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/map/map.h"

namespace tessera::ops {

/// The boxes of a partition that has boxes, numbered by ascending tiles.
class BoxesOnTiles {
 public:
  /// Neighbouring boxes of whole tiles; and the last of these tiles, which combines their results. It is not
  /// tile 0, where scalars lie, which would have most to exchange.
  struct Group {
    uint32_t begin = 0;
    uint32_t end = 0;
    program::TileId tile = 0;

    uint32_t count() const { return end - begin; }
  };

  explicit BoxesOnTiles(MapPartition partition);
  /// Where an operand lies. None on a host, or if a part of it lies on other tiles than the builder's.
  BoxesOnTiles(const Builder& builder, const Operand& operand)
      : BoxesOnTiles(partition_as_it_lies(builder, operand)) {}

  const MapPartition& partition() const { return partition_; }
  const std::vector<program::MappedBox>& boxes() const { return partition_.boxes; }
  uint32_t count() const { return static_cast<uint32_t>(boxes().size()); }
  uint32_t tiles() const { return static_cast<uint32_t>(by_tile_.size()); }
  /// A group for each tile.
  const std::vector<Group>& by_tile() const { return by_tile_; }
  /// `number` groups with nearly equal numbers of tiles; at most tiles().
  std::vector<Group> groups(uint32_t number) const;
  /// Numbers of groups that a planner may choose from: results are combined in each group, then between
  /// groups; 0: at once.
  std::vector<uint32_t> numbers_of_groups() const;

 private:
  MapPartition partition_;
  std::vector<Group> by_tile_;
};

/// ", joined in 32 groups of tiles"; of 0 groups nothing.
std::string groups_text(uint32_t number);

}  // namespace tessera::ops
