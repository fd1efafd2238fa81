// The addresses of a memory in use over time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compiler/address_ranges.h"
#include "compiler/lifetime.h"

namespace tessera::compiler {

/// Address ranges in use, by lifetime. Most memories hold some hundred pieces with almost as many lifetimes:
/// then the ranges in use at some time in the smallest window around the query's lifetime are searched in the
/// order of their addresses. Windows are halves of all moments, halves of these, and so on, so that the
/// ranges of one function of a program are not searched for another function. With thousands of pieces and
/// far fewer lifetimes, each lifetime keeps a union of the ranges in use during it, to which a query adds
/// only the ranges taken since the last query.
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
  static constexpr size_t kMostInOrder = 2 * kMostLookedThrough;  ///< more are not kept in windows
  static constexpr uint32_t kSlices = 64;                         ///< number of smallest windows
  static constexpr uint32_t kWhole = 1;                           ///< the window of all moments

  struct Taken {
    AddressRange range;
    uint32_t lifetime = 0;
  };
  struct Window {
    uint64_t slices = 0;         ///< a bit for each smallest window in it
    bool is_open = false;        ///< whether `taken` is kept
    std::vector<Taken> taken{};  ///< what is in use at some time in it, by first address
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
    std::vector<bool> is_met;       ///< by lifetime: whether `meets` has it
    uint64_t slices = 0;            ///< a bit for each smallest window in which it has a moment
    uint32_t window = kWhole;       ///< the smallest window that contains it
    bool is_used = false;
  };

  OfLifetime& use(uint32_t lifetime);
  void make_windows(uint32_t moments);
  const std::vector<Taken>& taken_in(uint32_t window);
  void find_met(OfLifetime& of, uint32_t lifetime);
  static uint64_t look_through(const std::vector<Taken>& taken, const OfLifetime& of, uint64_t at,
                               uint64_t room, uint64_t alignment);
  uint64_t look_through_joined(OfLifetime& of, uint64_t at, uint64_t room, uint64_t alignment);

  const std::vector<Lifetime>& lifetimes_;
  std::vector<std::vector<uint32_t>> beginning_;  ///< by moment: lifetimes with an interval that begins there
  std::vector<std::vector<uint32_t>> going_on_;   ///< by moment at which any begins: lifetimes with an
                                                  ///< interval that began before
  std::vector<OfLifetime> of_;
  std::vector<Window> windows_;  ///< a binary tree: after kWhole, 2w and 2w + 1 are the halves of w
  std::vector<uint32_t> open_;   ///< windows
  size_t ranges_ = 0;            ///< number of ranges of all lifetimes
  std::vector<uint32_t> used_;
};

}  // namespace tessera::compiler
