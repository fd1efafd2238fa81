// Cycles of sync and exchange. Planner and compiler use the same formulas.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "machine/model/machine.h"

namespace tessera::program {

/// Bytes of one tile in one exchange. Some incoming data may go to both tiles of a pair, some may be rows
/// gathered from anywhere; these are not in `in`. Outgoing data is counted once, however many tiles receive
/// it: the exchange broadcasts. Gathered rows are sent once to each pair of tiles: receivers of scattered
/// rows are rarely free at the same time.
struct TileTraffic {
  double in = 0;
  double paired_in = 0;
  double gathered_in = 0;
  double gathered_paired_in = 0;
  double out = 0;
  double gathered_out = 0;
  double local = 0;        ///< moved within the tile
  uint32_t transfers = 0;  ///< that end or begin here
};

/// Cycles of one tile's traffic; an exchange takes as long as its busiest tile.
inline double traffic_cycles(const machine::Machine& m, const TileTraffic& t) {
  const double gathered = t.gathered_in + t.gathered_paired_in / m.paired_exchange_factor;
  const double received = t.in + t.paired_in / m.paired_exchange_factor + gathered / m.gather_exchange_share;
  const double sent = t.out + t.gathered_out / m.gather_exchange_share;
  return std::max(received, sent) / m.exchange_bytes_per_cycle + t.transfers * m.exchange_transfer_cycles +
         t.local / m.load_bytes_per_cycle;
}

/// The sync before an exchange. A compute set that finds everything on its tiles needs none.
inline double exchange_sync_cycles(const machine::Machine& m) { return m.sync_cycles; }

/// The fixed cost of an exchange, without its sync.
inline double exchange_overhead_cycles(const machine::Machine& m) { return m.exchange_cycles; }

/// Starting the threads of a compute set on `tiles` tiles and waiting for them. One thread of a host needs
/// nobody;
/// tiles of a tiled machine wait only where they exchange.
inline double sync_cycles(const machine::Machine& m, size_t tiles) {
  if (m.kind == machine::Kind::tiled) return 0;
  return tiles > 1 ? m.figures.superstep_seconds * m.clock_hz : 0;
}

/// The cost of starting a compute set on `tiles` tiles of a tiled machine and detecting its end.
inline double superstep_cycles(const machine::Machine& m, size_t tiles) {
  return tiles > 0 ? m.superstep_cycles : 0;
}

}  // namespace tessera::program
