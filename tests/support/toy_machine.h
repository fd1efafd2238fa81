// A small machine whose tiles have their own memories, and hosts of a few threads.
#pragma once

#include <string>

#include "machine/model/machine.h"

namespace tessera::testing {

/// `tiles` tiles with `tile_bytes` each; no shared space unless `shared_bytes` says so.
inline machine::Machine toy_machine(uint32_t tiles, uint64_t tile_bytes = 64 << 10,
                                    uint64_t shared_bytes = 0) {
  machine::Machine m;
  m.name = "toy";
  m.kind = machine::Kind::tiled;
  m.tiles = tiles;
  m.workers_per_tile = 2;
  m.clock_hz = 1e9;
  m.tile_bytes = tile_bytes;
  m.shared_bytes = shared_bytes;
  m.load_bytes_per_cycle = 8;
  m.exchange_bytes_per_cycle = 4;
  m.exchange_cycles = 20;
  m.sync_cycles = 10;
  m.macs_per_cycle_f16 = 4;
  m.macs_per_cycle_f32 = 1;
  m.streaming_bytes = 1 << 20;
  m.streaming_bytes_per_second = 1e9;
  return m;
}

/// A toy machine with paired tiles, whose interleaved region is the upper half of their memory.
inline machine::Machine toy_machine_with_regions(uint32_t tiles, uint64_t tile_bytes = 64 << 10) {
  machine::Machine m = toy_machine(tiles, tile_bytes);
  m.interleaved_from = tile_bytes / 2;
  m.interleaved_load_factor = 2;
  m.paired_exchange_factor = 2;
  m.gather_exchange_share = 0.5;
  m.exchange_transfer_cycles = 3;
  return m;
}

/// Toy chips: links carry 2 bytes per cycle with a latency of 5, and syncs across chips take 50.
inline machine::Machine toy_chips(uint32_t chips, uint32_t tiles_each,
                                  machine::Topology topology = machine::Topology::ladder,
                                  uint32_t torus_width = 2) {
  machine::Machine m = toy_machine(chips * tiles_each);
  m.chips = chips;
  m.chip_tiles = tiles_each;
  m.topology = topology;
  m.torus_width = torus_width;
  m.link_bytes_per_second = 2e9;
  m.link_latency_seconds = 5e-9;
  m.chip_sync_cycles = 50;
  return m;
}

/// A host with `threads` tiles, independent of the actual host.
inline machine::Machine toy_host(uint32_t threads) {
  machine::Machine m;
  m.name = "host";
  m.kind = machine::Kind::host;
  m.tiles = threads;
  m.shared_bytes = uint64_t{1} << 30;
  m.figures.superstep_seconds = 1e-6;
  return m;
}

/// The machine that machine::read() makes of this is toy_machine(3), except for name and sources.
inline const std::string kToyToml = R"(name = "toy"
description = "three tiles for tests"
tiles = 3
workers_per_tile = 2
clock_ghz = 1.0
tile_bytes = 65536
load_bytes_per_cycle = 8
exchange_bytes_per_cycle = { value = 4, source = "made up" }
exchange_cycles = 20
sync_cycles = 10
macs_per_cycle_f16 = 4
macs_per_cycle_f32 = 1
)";

}  // namespace tessera::testing
