// Seeded machines of any shape: one tile, primes, tiny and huge memories, regions or none.
#pragma once

#include "base/random.h"
#include "support/toy_machine.h"

namespace tessera::testing {

inline machine::Machine random_machine(uint64_t seed) {
  base::RandomSequence random{base::RandomStream(seed, 11)};
  constexpr uint32_t kTiles[] = {1, 2, 3, 4, 5, 7, 8, 13, 31, 64, 127};
  constexpr uint64_t kBytes[] = {1, 64, 4096, 5000, 6000, 8192, 64 << 10, 624 << 10, 1'000'000'000'000};
  machine::Machine m =
      toy_machine(kTiles[random.below(std::size(kTiles))], kBytes[random.below(std::size(kBytes))]);
  m.workers_per_tile = 1 + random.below(6);
  if (random.below(2) == 0) m.interleaved_from = m.tile_bytes / (1 + random.below(4));
  m.load_bytes_per_cycle = 1 + random.below(16);
  m.exchange_bytes_per_cycle = 0.5 * (1 + random.below(16));
  m.paired_exchange_factor = 1 + random.below(2);
  m.gather_exchange_share = 1.0 / (1 + random.below(3));
  m.exchange_cycles = random.below(200);
  m.exchange_transfer_cycles = random.below(10);
  m.sync_cycles = random.below(200);
  return m;
}

}  // namespace tessera::testing
