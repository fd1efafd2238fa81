// Lists of spikes as fields of samples.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "kernels/samples/sample.h"

namespace tessera::kernels {

/// Lists of some neurons of each step and sample, those that fired first, both parts sorted.
inline void add_lists(Sample& s, uint32_t steps, uint32_t batch, uint32_t neurons, uint32_t capacity,
                      uint64_t seed) {
  base::RandomSequence random{base::RandomStream(seed)};
  std::vector<uint32_t> ids, num, all(neurons);
  for (uint32_t i = 0; i < steps * batch; ++i) {
    std::iota(all.begin(), all.end(), 0U);
    for (uint32_t n = 0; n + 1 < neurons; ++n) std::swap(all[n], all[n + random.below(neurons - n)]);
    const uint32_t listed = random.below(capacity + 1), spikes = random.below(listed + 1);
    std::sort(all.begin(), all.begin() + spikes);
    std::sort(all.begin() + spikes, all.begin() + listed);
    num.insert(num.end(), {spikes, listed});
    for (uint32_t e = 0; e < capacity; ++e) ids.push_back(e < listed ? all[e] : 0);
  }
  s.values(Type::u16, steps, batch * capacity, [&](uint64_t i) { return ids[i]; });
  s.values(Type::u32, steps, batch * 2, [&](uint64_t i) { return num[i]; });
}

}  // namespace tessera::kernels
