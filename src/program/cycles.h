// Cycles of synchronising and exchanging. Planner and compiler use the same formulas.
#pragma once

#include <algorithm>
#include <cstddef>

#include "machine/machine.h"

namespace tessera::program {

/// Bytes of one tile in one exchange: from other tiles, to them, and moved within the tile.
struct TileTraffic {
  double in = 0;
  double out = 0;
  double local = 0;
};

/// What the traffic of one tile takes; an exchange takes as long as its busiest tile.
inline double traffic_cycles(const machine::Machine& m, const TileTraffic& t) {
  return std::max(t.in, t.out) / m.exchange_bytes_per_cycle + t.local / m.load_bytes_per_cycle;
}

/// The fixed part of an exchange, with the sync before it.
inline double exchange_overhead_cycles(const machine::Machine& m) {
  return m.exchange_cycles + m.sync_cycles;
}

/// The sync that ends a compute set whose vertices lie on `tiles` tiles. One thread of a host waits
/// for nobody.
inline double sync_cycles(const machine::Machine& m, size_t tiles) {
  if (m.kind == machine::Kind::tiled) return m.sync_cycles;
  return tiles > 1 ? m.figures.barrier_seconds * m.clock_hz : 0;
}

}  // namespace tessera::program
