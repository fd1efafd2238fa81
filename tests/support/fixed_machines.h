// Hosts with fixed figures, independent of the actual host, so that plans and costs for them are the same
// everywhere.
#pragma once

#include "machine/model/machine.h"

namespace tessera::testing {

inline machine::Machine fixed_host(const char* name, uint32_t threads, const machine::HostFigures& figures) {
  machine::Machine m;
  m.name = name;
  m.kind = machine::Kind::host;
  m.tiles = threads;
  m.shared_bytes = uint64_t{16} << 30;
  m.figures = figures;
  m.figures.threads = threads;
  m.clock_hz = figures.ghz * 1e9;
  m.facts.cpu = name;
  m.facts.isa = figures.isa;
  m.facts.nominal_ghz = figures.ghz;
  m.facts.l1_bytes = figures.l1_bytes;
  m.facts.l2_bytes = figures.l2_bytes;
  m.facts.l3_bytes = figures.l3_bytes;
  m.facts.cores_per_l3 = m.facts.physical_cores = m.facts.allowed_threads = threads;
  m.facts.memory_bytes = m.shared_bytes;
  return m;
}

/// Eight cores with AVX2, much L3 cache and modest memory, like a desktop processor.
inline machine::Machine avx2_host() {
  return fixed_host("avx2", 8,
                    {.isa = Isa::avx2,
                     .ghz = 3.6,
                     .flops_per_cycle = 32,
                     .l1_bytes_per_cycle = 64,
                     .l2_bytes_per_cycle = 32,
                     .l3_bytes_per_cycle = 12,
                     .memory_core_gbps = 20,
                     .memory_gbps = 40,
                     .superstep_seconds = 2e-6,
                     .l1_bytes = 32 << 10,
                     .l2_bytes = 512 << 10,
                     .l3_bytes = 32 << 20});
}

/// Four cores with AVX-512 and a large L2 cache each, like a part of a server.
inline machine::Machine avx512_host() {
  return fixed_host("avx512", 4,
                    {.isa = Isa::avx512,
                     .ghz = 2.4,
                     .flops_per_cycle = 64,
                     .l1_bytes_per_cycle = 128,
                     .exposed_loads = 0.35,
                     .l2_bytes_per_cycle = 44,
                     .l3_bytes_per_cycle = 10,
                     .memory_core_gbps = 12,
                     .memory_gbps = 48,
                     .superstep_seconds = 2.5e-6,
                     .l1_bytes = 48 << 10,
                     .l2_bytes = 2 << 20,
                     .l3_bytes = 24 << 20});
}

/// avx512_host() with products of BF16 by AMX tiles.
inline machine::Machine amx_host() {
  machine::HostFigures figures = avx512_host().figures;
  figures.isa = Isa::amx;
  figures.bf16_flops_per_cycle = 1024;
  return fixed_host("amx", 4, figures);
}

}  // namespace tessera::testing
