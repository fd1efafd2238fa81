// The addresses of a memory in use over time.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/address_ranges.h"
#include "compiler/lifetime.h"

namespace tessera::compiler {

/// Address ranges in use, by lifetime. Most memories hold about a hundred pieces with almost as many
/// lifetimes: then all ranges are searched in the order of their addresses. With thousands of pieces and far
/// fewer lifetimes, each lifetime keeps a union of the ranges in use during it, to which a query adds only
/// the ranges taken since the last query.
class AddressesInUse {
 public:
  /// Memories are filled one after another, with the same `lifetimes`, whose moments are all below `moments`.
  AddressesInUse(const std::vector<Lifetime>& lifetimes, uint32_t moments);

  /// Forgets all ranges.
  void clear();
  void occupy(AddressRange range, uint32_t lifetime);
  /// The lowest multiple of `alignment` from `at` on, from which `room` bytes are free during a lifetime.
  uint64_t lowest_free(uint64_t at, uint64_t room, uint64_t alignment, uint32_t lifetime);

 private:
  static constexpr size_t kMostLookedThrough = 2048;

  struct Taken {
    AddressRange range;
    uint32_t lifetime = 0;
  };
  /// A lifetime that overlaps another one, and the number of its ranges that the other has joined.
  struct Met {
    uint32_t lifetime = 0;
    uint32_t joined = 0;
  };
  struct OfLifetime {
    std::vector<AddressRange> own;  ///< in the order in which they were taken
    AddressRanges taken;            ///< ranges of this lifetime and of those that it overlaps
    std::vector<Met> meets;         ///< overlapping lifetimes, itself included; found at the first query
    std::vector<bool> is_met;       ///< by lifetime: whether it is one of these
    bool is_used = false;
  };

  OfLifetime& use(uint32_t lifetime);
  void find_met(OfLifetime& of, uint32_t lifetime);
  uint64_t look_through(const OfLifetime& of, uint64_t at, uint64_t room, uint64_t alignment) const;
  uint64_t look_through_joined(OfLifetime& of, uint64_t at, uint64_t room, uint64_t alignment);

  const std::vector<Lifetime>& lifetimes_;
  std::vector<std::vector<uint32_t>> beginning_;  ///< by moment: lifetimes with an interval that begins there
  std::vector<std::vector<uint32_t>> going_on_;   ///< by moment at which any begins: lifetimes with an
                                                  ///< interval that began before
  std::vector<OfLifetime> of_;
  std::vector<Taken> taken_;  ///< by first address; used while ranges are few
  size_t ranges_ = 0;         ///< number of ranges of all lifetimes
  std::vector<uint32_t> used_;
};

}  // namespace tessera::compiler
