// The order of packs in an index.
#pragma once

#include <tessera/packing.h>

#include <cstdint>
#include <vector>

namespace tessera::pack {

/// Packs numbered by group: the packs of the first group, then the packs of the second, …
class PackOrder {
 public:
  /// Throws Error if memory does not suffice.
  PackOrder(const Packing& packing, const OrderOptions& order);

  uint64_t packs() const { return first_of_group_.back(); }

  /// A pack of the packing.
  struct Pack {
    uint64_t group = 0;  ///< index in Packing::strategies
    uint64_t pack = 0;   ///< within the group
  };

  /// The pack at a position of the index.
  Pack operator[](uint64_t position) const;

  /// How many packs from this position on continue its group.
  uint64_t run(uint64_t position, const Pack& place) const {
    return permuted() ? 1 : first_of_group_[place.group + 1] - position;
  }

  /// Whether neighbours usually belong to different groups.
  bool permuted() const { return number_at_.size() > 0; }

 private:
  Pack place_of(uint64_t number) const;
  void look_up_groups();

  std::vector<uint64_t> first_of_group_;  // number; plus one at the end
  std::vector<uint64_t> group_near_;      // by the high bits of numbers
  unsigned near_shift_ = 0;
  IndexArray number_at_;  // per position; empty: identity
};

/// Attention cost of a pack: Σ length², at most the square of the maximum.
uint64_t attention_cost(const Strategy& strategy);

}  // namespace tessera::pack
