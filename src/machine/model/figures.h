// Rates of a host that cost models calculate with.
#pragma once

#include <cstdint>
#include <string>

#include "base/isa.h"
#include "machine/host/detect.h"

namespace tessera::machine {

/// Rates of a host for one instruction set. "A core" is one thread of Tessera's. FP32; a fused
/// multiply-add counts as two operations. Bytes per cycle are of streaming reads.
struct HostFigures {
  Isa isa = Isa::generic;
  double ghz = 0;                 ///< clock under a sustained vector load
  double flops_per_cycle = 0;     ///< a core
  double l1_bytes_per_cycle = 0;  ///< a core
  double exposed_loads = 0;       ///< share of L1 reads that multiply-adds beside them do not hide
  double l2_bytes_per_cycle = 0;  ///< a core
  double l3_bytes_per_cycle = 0;  ///< a core, all cores reading
  double memory_core_gbps = 0;    ///< 10^9 bytes a second, one core reading alone
  double memory_gbps = 0;         ///< 10^9 bytes a second, all cores together
  double barrier_seconds = 0;     ///< one barrier of all threads
  uint64_t l1_bytes = 0;          ///< of a core
  uint64_t l2_bytes = 0;          ///< of a core
  uint64_t l3_bytes = 0;          ///< of all cores that share one
  unsigned threads = 1;

  double core_gflops() const { return ghz * flops_per_cycle; }
};

/// Built-in figures, conservative ones, of a processor with these facts when its kernels are held
/// to `isa`.
HostFigures builtin_figures(const HostFacts& facts, Isa isa, unsigned threads);

/// One "name: value" line a figure, for people.
std::string describe(const HostFigures& figures);

}  // namespace tessera::machine
