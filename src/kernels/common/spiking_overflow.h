// Which listed neurons stay when there are more than lists have room for: spikes first, the others by chance,
// each with the same.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/random.h"

namespace tessera::kernels {

/// Of `listed` neurons the first `fired` have fired; `limit` of all stay. Calls keep(to, from) for each of
/// them in order, and returns how many of the fired ones they are. Each step of a sample has as many random
/// numbers as a layer may have neurons.
template <class Keep>
uint32_t keep_by_chance(const base::RandomStream& stream, uint32_t step, uint64_t sample, uint32_t fired,
                        uint32_t listed, uint32_t limit, const Keep& keep) {
  uint64_t number = ((uint64_t{step} << 32) | sample) << 16;
  const auto choose = [&](uint32_t begin, uint32_t end, uint32_t wanted, uint32_t to) {
    for (uint32_t i = begin; i < end && wanted > 0; ++i) {
      const uint64_t word = stream.word(number++);
      if (word * (end - i) >> 32 >= wanted) continue;
      keep(to++, i);
      --wanted;
    }
  };
  const uint32_t spikes = std::min(fired, limit);
  choose(0, fired, spikes, 0);
  choose(fired, listed, limit - spikes, spikes);
  return spikes;
}

}  // namespace tessera::kernels
