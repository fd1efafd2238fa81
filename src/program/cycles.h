// Cycles of sync and exchange. Planner and compiler use the same formulas.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "machine/model/machine.h"
#include "program/codelet.h"

namespace tessera::program {

/// Bytes of one tile in one exchange. Incoming data that goes to both tiles of a pair, and rows gathered from
/// anywhere, are counted separately from `in`. Outgoing data is counted once, however many tiles receive it:
/// the exchange broadcasts. Receivers of scattered rows are rarely free at the same time: gathered rows are
/// sent once to each pair of tiles, and none arrives at both tiles of a pair at once.
struct TileTraffic {
  double in = 0;
  double paired_in = 0;
  double gathered_in = 0;
  double out = 0;
  double gathered_out = 0;
  double local = 0;        ///< bytes moved within the tile
  uint32_t transfers = 0;  ///< number of transfers that end or begin on the tile
};

/// Cycles of one tile's traffic; an exchange takes as long as its busiest tile.
inline double traffic_cycles(const machine::Machine& m, const TileTraffic& t) {
  const double received =
      t.in + t.paired_in / m.paired_exchange_factor + t.gathered_in / m.gather_exchange_share;
  const double sent = t.out + t.gathered_out / m.gather_exchange_share;
  return std::max(received, sent) / m.exchange_bytes_per_cycle + t.transfers * m.exchange_transfer_cycles +
         t.local / m.load_bytes_per_cycle;
}

/// Cycles for moving bytes from or to the streaming memory of one chip; its tiles share the bandwidth.
inline double streaming_cycles(const machine::Machine& m, double bytes) {
  return bytes == 0 ? 0 : bytes / m.streaming_bytes_per_second * m.clock_hz;
}

/// Cycles of the sync before an exchange. A compute set whose operands are all on its tiles needs none.
inline double exchange_sync_cycles(const machine::Machine& m) { return m.sync_cycles; }

/// The fixed cost of an exchange, without its sync.
inline double exchange_overhead_cycles(const machine::Machine& m) { return m.exchange_cycles; }

/// Cycles for starting the threads of a compute set on `tiles` tiles and waiting for them. A single thread of
/// a host need not wait; tiles of a tiled machine wait only for exchanges.
inline double sync_cycles(const machine::Machine& m, size_t tiles) {
  if (m.kind == machine::Kind::tiled) return 0;
  return tiles > 1 ? m.figures.superstep_seconds * m.clock_hz : 0;
}

/// Copies that threads of a host share are dealt to them in parts of about this many bytes.
inline constexpr uint64_t kHostCopyPartBytes = 64 << 10;

/// Number of threads that take part in a copy of `bytes` bytes.
inline size_t host_copy_threads(const machine::Machine& m, uint64_t bytes) {
  return bytes < 2 * kHostCopyPartBytes ? 1 : std::min<uint64_t>(m.tiles, bytes / kHostCopyPartBytes);
}

/// Cycles for copying within a host's memory: bytes are read and written, at the rate of the cache level that
/// holds both. Beyond the L2 cache a line is read before it is written.
inline PhaseTimes host_copy_cycles(const machine::Machine& m, uint64_t bytes) {
  const machine::HostFigures& f = m.figures;
  const size_t threads = host_copy_threads(m, bytes);
  const double of_thread = static_cast<double>(bytes) / static_cast<double>(threads);
  const bool in_l2 = 2 * of_thread <= static_cast<double>(f.l2_bytes);
  const bool in_l3 = 2 * static_cast<double>(bytes) <= static_cast<double>(f.l3_bytes);
  const double memory_gbps = std::min(f.memory_core_gbps, f.memory_gbps / static_cast<double>(threads));
  const double rate = in_l2   ? f.l2_bytes_per_cycle
                      : in_l3 ? f.l3_bytes_per_cycle
                              : memory_gbps * 1e9 / m.clock_hz;
  PhaseTimes cycles;
  if (rate > 0) cycles[Phase::exchange] = (in_l2 ? 2 : 3) * of_thread / rate;
  cycles[Phase::sync] = sync_cycles(m, threads);
  return cycles;
}

/// The cost of starting a compute set on `tiles` tiles of a tiled machine and detecting its end.
inline double superstep_cycles(const machine::Machine& m, size_t tiles) {
  return tiles > 0 ? m.superstep_cycles : 0;
}

}  // namespace tessera::program
