// Groups of neighbouring bits in a word.
#pragma once

#include <cstdint>

namespace tessera::sparse {

/// The lowest bit of each aligned group of `size` bits: 1, 2, 4, …, 64.
constexpr uint64_t lowest_of_groups(uint32_t size) { return UINT64_MAX / (UINT64_MAX >> (64 - size)); }

/// The lowest bit of each aligned group of `size` bits in which a bit is set.
constexpr uint64_t groups_with_any(uint64_t word, uint32_t size) {
  for (uint32_t shift = 1; shift < size; shift *= 2) word |= word >> shift;
  return word & lowest_of_groups(size);
}

/// The lowest bit of each aligned group of four bits in which more than two are set.
constexpr uint64_t fours_with_three(uint64_t word) {
  constexpr uint64_t kPairs = UINT64_MAX / 3, kFours = UINT64_MAX / 5;
  const uint64_t pairs = (word & kPairs) + (word >> 1 & kPairs);
  const uint64_t count = (pairs & kFours) + (pairs >> 2 & kFours);
  return (count >> 2 | (count >> 1 & count)) & lowest_of_groups(4);
}

}  // namespace tessera::sparse
