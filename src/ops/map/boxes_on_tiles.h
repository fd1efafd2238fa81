// Operations that compute partial results of an operand where its boxes lie, and join these.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/map/map.h"

namespace tessera::ops {

/// The boxes of a partition that has boxes, numbered by ascending tiles.
class BoxesOnTiles {
 public:
  /// Neighbouring boxes of whole tiles; and the last of them, to join what they have in common. Tile
  /// 0, where scalars lie, has most to exchange otherwise.
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
  /// So many groups of equally many tiles, or almost; at most tiles().
  std::vector<Group> groups(uint32_t number) const;
  /// Numbers of groups in which to join results before they are joined into one, 0 for none, of which a
  /// planner may choose.
  std::vector<uint32_t> numbers_of_groups() const;

 private:
  MapPartition partition_;
  std::vector<Group> by_tile_;
};

/// ", joined in 32 groups of tiles"; of 0 groups nothing.
std::string groups_text(uint32_t number);

}  // namespace tessera::ops
