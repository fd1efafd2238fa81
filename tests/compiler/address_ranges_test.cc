// Address ranges in use, compared with a map of bytes.
#include "compiler/address_ranges.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"

namespace tessera::compiler {
namespace {

constexpr uint32_t kBytes = 6000;

/// The lowest byte from `at` on before `room` free ones.
uint64_t lowest_free(const std::vector<bool>& taken, uint64_t at, uint64_t room) {
  uint64_t begin = at;
  for (uint64_t byte = at; byte < begin + room; ++byte)
    if (byte < taken.size() && taken[byte]) begin = byte + 1;
  return begin;
}

/// Many short ranges, of which a long one joins some from time to time.
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

}  // namespace
}  // namespace tessera::compiler
