// Splits work into parts worth a thread's overhead.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/parallel.h"

namespace tessera::sparse {

/// Number of parts for work that touches this many bytes.
inline uint32_t parts_for(uint64_t bytes) {
  constexpr uint64_t kPartBytes = 128 << 10;
  constexpr uint64_t kMostParts = 16;
  return static_cast<uint32_t>(std::clamp<uint64_t>(bytes / kPartBytes, 1, kMostParts));
}

/// Calls job(part, begin, end) for equal parts of `units`.
template <class Units, class Job>
void for_each_part(Units units, uint32_t parts, const base::ParallelFor& parallel, const Job& job) {
  const auto border = [&](uint32_t part) { return static_cast<Units>(uint64_t{units} * part / parts); };
  if (parts == 1) return job(0, Units{0}, units);
  parallel(parts, [&](uint32_t part) { job(part, border(part), border(part + 1)); });
}

}  // namespace tessera::sparse
