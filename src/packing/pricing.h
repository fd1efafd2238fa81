// The pricing problem: heaviest packs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "packing/master.h"

namespace tessera::pack {

/// The largest weights of packs for each room, by dynamic programming over rooms and, if the depth is
/// limited, over the number of sequences. `Weight` is double or uint64_t.
template <class Weight>
class Knapsack {
 public:
  /// `lengths` are ascending. `depth_limit` as from depth_limit().
  Knapsack(std::vector<uint32_t> lengths, uint32_t max_length, uint32_t depth_limit);

  /// Bytes of the tables for these arguments of the constructor.
  static uint64_t bytes_of(std::span<const uint32_t> lengths, uint32_t max_length, uint32_t depth_limit);

  /// Fills the tables for these weights, one per length.
  void solve(std::span<const Weight> weights);

  /// Largest weight of any pack.
  Weight heaviest() const { return tables_.back()[max_length_]; }

  /// A heaviest pack with a slot for the row. `seed` breaks ties.
  Pattern pack_with(uint32_t row, uint32_t seed) const;

 private:
  std::optional<uint32_t> heaviest_row(uint32_t room, const std::vector<Weight>& rest, uint32_t seed) const;
  bool is_layered() const { return depth_limit_ < deepest_; }

  std::vector<uint32_t> lengths_;
  uint32_t max_length_;
  uint32_t depth_limit_;
  uint32_t deepest_;  // depth of a pack without a limit
  std::vector<Weight> weights_;
  // tables_[d][room]: largest weight of at most d sequences in that room. A single table if the depth is
  // unlimited.
  std::vector<std::vector<Weight>> tables_;
};

extern template class Knapsack<double>;
extern template class Knapsack<uint64_t>;

}  // namespace tessera::pack
