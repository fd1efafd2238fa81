// Integers for sums and products of 64-bit counts.
#pragma once

#include <cstdint>

namespace tessera::pack {

__extension__ using WideCount = unsigned __int128;

inline uint64_t ceil_divide(WideCount a, uint64_t b) { return static_cast<uint64_t>((a + b - 1) / b); }

}  // namespace tessera::pack
