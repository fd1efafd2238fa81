#include "compiler/addresses_in_use.h"

#include <bit>

namespace tessera::compiler {

AddressesInUse::AddressesInUse(const std::vector<Lifetime>& lifetimes, uint32_t moments)
    : lifetimes_(lifetimes),
      moments_(std::bit_ceil(std::max(1U, moments))),
      tree_(size_t{2} * moments_),
      nodes_of_(lifetimes.size()) {}

void AddressesInUse::clear() {
  for (const uint32_t node : used_) {
    tree_[node].own.clear();
    tree_[node].below.clear();
    tree_[node].is_used = false;
  }
  used_.clear();
}

void AddressesInUse::take(AddressRange range, uint32_t lifetime) {
  const Nodes& nodes = nodes_of(lifetime);
  for (const uint32_t node : nodes.own) use(node).own.add(range);
  for (const uint32_t node : nodes.above) use(node).below.add(range);
}

uint64_t AddressesInUse::lowest_free(uint64_t at, uint64_t room, uint64_t alignment, uint32_t lifetime) {
  const Nodes& nodes = nodes_of(lifetime);
  const auto aligned = [&](uint64_t address) { return (address + alignment - 1) / alignment * alignment; };
  at = aligned(at);
  bool moved = true;
  const auto skip = [&](const AddressRanges& ranges) {
    const uint64_t next = aligned(ranges.next_free(at, room));
    moved = moved || next != at;
    at = next;
  };
  while (moved) {
    moved = false;
    for (const uint32_t node : nodes.own) {
      skip(tree_[node].own);
      skip(tree_[node].below);
    }
    for (const uint32_t node : nodes.above) skip(tree_[node].own);
  }
  return at;
}

const AddressesInUse::Nodes& AddressesInUse::nodes_of(uint32_t lifetime) {
  Nodes& nodes = nodes_of_[lifetime];
  if (nodes.own.empty()) collect(1, 0, moments_, lifetimes_[lifetime], nodes);
  return nodes;
}

/// `node` represents the moments [begin, end).
void AddressesInUse::collect(uint32_t node, uint32_t begin, uint32_t end, const Lifetime& lifetime,
                             Nodes& nodes) const {
  auto interval = std::lower_bound(lifetime.begin(), lifetime.end(), begin,
                                   [](const Interval& i, uint32_t moment) { return i.last < moment; });
  if (interval == lifetime.end() || interval->first >= end) return;
  if (interval->first <= begin && interval->last >= end - 1) {
    nodes.own.push_back(node);
    return;
  }
  nodes.above.push_back(node);
  const uint32_t middle = begin + (end - begin) / 2;
  collect(2 * node, begin, middle, lifetime, nodes);
  collect(2 * node + 1, middle, end, lifetime, nodes);
}

AddressesInUse::Node& AddressesInUse::use(uint32_t node) {
  Node& n = tree_[node];
  if (!n.is_used) {
    n.is_used = true;
    used_.push_back(node);
  }
  return n;
}

}  // namespace tessera::compiler
