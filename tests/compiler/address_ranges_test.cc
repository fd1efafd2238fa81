// Address ranges in use, compared with maps of bytes.
#include "compiler/address_ranges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/random.h"
#include "compiler/addresses_in_use.h"

namespace tessera::compiler {
namespace {

constexpr uint32_t kBytes = 6000;

/// The lowest byte from `at` on with which `room` free bytes begin.
uint64_t lowest_free(const std::vector<bool>& taken, uint64_t at, uint64_t room) {
  uint64_t begin = at;
  for (uint64_t byte = at; byte < begin + room; ++byte)
    if (byte < taken.size() && taken[byte]) begin = byte + 1;
  return begin;
}

/// The lowest multiple of `alignment`.
uint64_t lowest_free(const std::vector<bool>& taken, uint64_t at, uint64_t room, uint64_t alignment) {
  for (;;) {
    const uint64_t begin = (at + alignment - 1) / alignment * alignment;
    at = lowest_free(taken, begin, room);
    if (at == begin) return begin;
  }
}

/// Many short ranges, some of which a long one joins from time to time.
TEST(AddressRanges, FindTheLowestFreeAddress) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    base::RandomSequence random{base::RandomStream(seed, 7)};
    AddressRanges ranges;
    std::vector<bool> taken(kBytes);
    for (uint32_t i = 0; i < 1500; ++i) {
      const uint32_t length = i % 200 == 199 ? 400 + random.below(400) : 1 + random.below(2);
      const uint32_t begin = random.below(kBytes - length);
      ranges.add({begin, begin + length});
      for (uint32_t byte = begin; byte < begin + length; ++byte) taken[byte] = true;
      for (const uint32_t room : {1U, 2 + random.below(6), 30U}) {
        const uint32_t at = random.below(kBytes);
        ASSERT_EQ(ranges.next_free(at, room), lowest_free(taken, at, room))
            << "seed " << seed << ", after " << i << ": " << room << " bytes from " << at;
      }
    }
    ranges.clear();
    EXPECT_TRUE(ranges.empty());
    EXPECT_EQ(ranges.next_free(5, 100), 5U);
  }
}

bool meet(const Lifetime& a, const Lifetime& b) {
  return std::ranges::any_of(a, [&](const Interval& x) {
    return std::ranges::any_of(b, [&](const Interval& y) { return x.first <= y.last && y.first <= x.last; });
  });
}

/// Few ranges are searched one by one, and many are joined first: the result must not depend on that.
TEST(AddressesInUse, FindTheLowestFreeAddressDuringALifetime) {
  constexpr uint32_t kMoments = 40;
  base::RandomSequence random{base::RandomStream(3, 7)};
  std::vector<Lifetime> lifetimes;
  for (uint32_t i = 0; i < 30; ++i) {
    std::vector<Interval> intervals;
    for (uint32_t part = 0; part <= i % 3; ++part) {
      const uint32_t first = random.below(kMoments);
      intervals.push_back({first, std::min(kMoments - 1, first + random.below(6))});
    }
    lifetimes.push_back(joined(std::move(intervals)));
  }
  AddressesInUse in_use(lifetimes, kMoments);
  for (const uint32_t pieces : {20U, 700U, 2500U, 4500U}) {
    in_use.clear();
    std::vector<std::vector<bool>> taken(lifetimes.size(), std::vector<bool>(16 * pieces));
    for (uint32_t i = 0; i < pieces; ++i) {
      const uint32_t lifetime = random.below(30);
      const uint64_t room = 1 + random.below(12), alignment = uint64_t{1} << random.below(4);
      const uint64_t at = random.below(20);
      const uint64_t found = in_use.lowest_free(at, room, alignment, lifetime);
      ASSERT_EQ(found, lowest_free(taken[lifetime], at, room, alignment))
          << "piece " << i << " of " << pieces;
      in_use.occupy({found, found + room}, lifetime);
      for (uint32_t other = 0; other < lifetimes.size(); ++other)
        if (meet(lifetimes[lifetime], lifetimes[other]))
          std::fill_n(taken[other].begin() + static_cast<int64_t>(found), room, true);
    }
  }
}

}  // namespace
}  // namespace tessera::compiler
