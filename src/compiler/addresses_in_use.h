// The addresses of a memory in use at each moment.
#pragma once

#include <vector>

#include "compiler/address_ranges.h"
#include "compiler/lifetime.h"

namespace tessera::compiler {

/// A segment tree over moments. A range in use during some of them is stored at the few nodes that cover
/// these, and summarised in the nodes above; queries work likewise.
class AddressesInUse {
 public:
  /// For filling memories one after another; all use the same `lifetimes`, whose moments are below `moments`.
  AddressesInUse(const std::vector<Lifetime>& lifetimes, uint32_t moments);

  /// Removes all ranges.
  void clear();
  void take(AddressRange range, uint32_t lifetime);
  /// The lowest multiple of `alignment` from `at` on with `room` bytes free during a lifetime.
  uint64_t lowest_free(uint64_t at, uint64_t room, uint64_t alignment, uint32_t lifetime);

 private:
  struct Node {
    AddressRanges own;    ///< in use during all of the node's moments
    AddressRanges below;  ///< in use during some of them
    bool is_used = false;
  };
  /// The nodes that cover a lifetime, and those above them.
  struct Nodes {
    std::vector<uint32_t> own;
    std::vector<uint32_t> above;
  };

  const Nodes& nodes_of(uint32_t lifetime);
  void collect(uint32_t node, uint32_t begin, uint32_t end, const Lifetime& lifetime, Nodes& nodes) const;
  Node& use(uint32_t node);

  const std::vector<Lifetime>& lifetimes_;
  uint32_t moments_;
  std::vector<Node> tree_;
  std::vector<uint32_t> used_;
  std::vector<Nodes> nodes_of_;  ///< by lifetime
};

}  // namespace tessera::compiler
