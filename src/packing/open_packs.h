// Packs with room left, indexed by room.
#pragma once

#include <tessera/packing.h>

#include <optional>
#include <vector>

#include "packing/contents.h"
#include "packing/length_set.h"

namespace tessera::pack {

/// Groups of open packs; among groups with equal room, the latest comes first. A pack closes when it is full
/// or has reached the depth limit.
class OpenPacks {
 public:
  OpenPacks(uint32_t max_length, uint32_t depth_limit)
      : depth_limit_(depth_limit), rooms_(max_length), groups_(size_t{max_length} + 1) {
    fresh_.room = max_length;
  }

  /// Adds non-empty packs.
  void open(const Strategy& strategy);

  /// The smallest room of an open pack that is at least `length`.
  std::optional<uint32_t> least_room(uint32_t length) const { return rooms_.at_least(length); }
  /// The largest room of an open pack.
  std::optional<uint32_t> most_room() const { return rooms_.largest(); }

  /// Removes a group with that room.
  PackGroup take(uint32_t room);
  /// Returns packs of a removed group.
  void put_back(const PackGroup& group);
  /// Adds `copies` sequences of that length to each of `count` packs of a group.
  void fill(const PackGroup& group, uint64_t count, uint32_t length, uint32_t copies);
  /// An empty pack.
  const PackGroup& fresh() const { return fresh_; }

  uint32_t depth_limit() const { return depth_limit_; }

  /// All packs, open or closed, as strategies.
  std::vector<Strategy> strategies() const;

 private:
  void keep(const PackGroup& group);

  uint32_t depth_limit_;
  Contents contents_;
  PackGroup fresh_;
  LengthSet rooms_;
  std::vector<std::vector<PackGroup>> groups_;  // groups of open packs, by room
  std::vector<PackGroup> closed_;
};

}  // namespace tessera::pack
