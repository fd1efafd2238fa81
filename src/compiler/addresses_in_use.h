// Which addresses of a memory are taken when.
#pragma once

#include <vector>

#include "compiler/address_ranges.h"
#include "compiler/lifetime.h"

namespace tessera::compiler {

/// A segment tree over moments. A range that is taken during some of them stands at the few nodes that make
/// those up, and in what the nodes above have below them; so does a question.
class AddressesInUse {
 public:
  /// Memories are filled one after another; what stays the same is `lifetimes`, all of moments below
  /// `moments`.
  AddressesInUse(const std::vector<Lifetime>& lifetimes, uint32_t moments);

  /// Forgets all ranges.
  void clear();
  void take(AddressRange range, uint32_t lifetime);
  /// The lowest multiple of `alignment` from `at` on, from which `room` bytes are free during a lifetime.
  uint64_t lowest_free(uint64_t at, uint64_t room, uint64_t alignment, uint32_t lifetime);

 private:
  struct Node {
    AddressRanges own;    ///< taken during all of the node's moments
    AddressRanges below;  ///< taken during some of them
    bool is_used = false;
  };
  /// Nodes that make up a lifetime, and those above them.
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
