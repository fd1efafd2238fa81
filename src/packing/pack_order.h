// The order in which packs stand in an index.
#pragma once

#include <tessera/packing.h>

#include <cstdint>
#include <vector>

namespace tessera::pack {

/// Packs of a packing by number: those of its first group, then those of the second, …
class PackOrder {
 public:
  /// Throws Error where memory does not suffice.
  PackOrder(const Packing& packing, const Order& order);

  uint64_t packs() const { return first_of_group_.back(); }

  /// A pack of the packing.
  struct Place {
    uint64_t group = 0;  ///< position in Packing::strategies
    uint64_t pack = 0;   ///< within the group
  };

  /// The pack at a position of the index.
  Place operator[](uint64_t position) const;

  /// How many packs from this position on are the next of its group.
  uint64_t run(uint64_t position, const Place& place) const {
    return permuted() ? 1 : first_of_group_[place.group + 1] - position;
  }

  /// Whether neighbours are of different groups as a rule.
  bool permuted() const { return number_at_.size() > 0; }

 private:
  Place place_of(uint64_t number) const;
  void look_up_groups();

  std::vector<uint64_t> first_of_group_;  // number; one more at the end
  std::vector<uint64_t> group_near_;      // of numbers by their high bits
  unsigned near_shift_ = 0;
  IndexArray number_at_;  // of each position; empty: the same
};

/// Attention cost of a pack: Σ length², at most the square of the maximum.
uint64_t attention_cost(const Strategy& strategy);

}  // namespace tessera::pack
