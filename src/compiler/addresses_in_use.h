// Which addresses of a memory are taken when.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/address_ranges.h"
#include "compiler/lifetime.h"

namespace tessera::compiler {

/// Most memories hold some hundred pieces with almost as many lifetimes: all ranges are looked through in the
/// order of their addresses. Where there are thousands, with far fewer lifetimes, each lifetime keeps what is
/// taken during it, joined where it touches; it joins only what was taken since it was asked last.
class AddressesInUse {
 public:
  /// Memories are filled one after another; what stays the same is `lifetimes`, all of moments below
  /// `moments`.
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
  /// A lifetime that another meets, and how many of its ranges that one has joined.
  struct Met {
    uint32_t lifetime = 0;
    uint32_t joined = 0;
  };
  struct OfLifetime {
    std::vector<AddressRange> own;  ///< in the order in which they were taken
    AddressRanges taken;            ///< by itself and those it meets
    std::vector<Met> meets;         ///< itself included; found when it is asked for the first time
    bool is_used = false;
  };

  OfLifetime& use(uint32_t lifetime);
  void find_met(OfLifetime& of, uint32_t lifetime);
  uint64_t look_through(const OfLifetime& of, uint64_t at, uint64_t room, uint64_t alignment);
  uint64_t look_through_joined(OfLifetime& of, uint64_t at, uint64_t room, uint64_t alignment);

  const std::vector<Lifetime>& lifetimes_;
  std::vector<std::vector<uint32_t>> beginning_;  ///< by moment: lifetimes of which an interval begins there
  std::vector<std::vector<uint32_t>> going_on_;   ///< and those that began before, where any begins
  std::vector<OfLifetime> of_;
  std::vector<Taken> taken_;  ///< by first address, as long as they are few
  size_t ranges_ = 0;         ///< taken by all
  std::vector<uint32_t> used_;
  std::vector<uint8_t> is_met_;  ///< by lifetime, by the one that is looked at; 0 between calls
};

}  // namespace tessera::compiler
