// Rates of a host for cost models.
#pragma once

#include <cstdint>

#include "base/isa.h"
#include "machine/host/detect.h"

namespace tessera::machine {

/// Rates of a host for one instruction set. A "core" is one of Tessera's threads. FP32; a fused multiply-add
/// counts as two operations. Bytes per cycle are for streaming reads.
struct HostFigures {
  Isa isa = Isa::generic;
  double ghz = 0;              ///< clock under a sustained vector load
  double flops_per_cycle = 0;  ///< per core
  double bf16_flops_per_cycle =
      0;  ///< per core, for products of BF16 with FP32 sums; 0 without BF16 instructions
  double l1_bytes_per_cycle = 0;  ///< per core
  double exposed_loads = 0;       ///< fraction of L1 reads that concurrent multiply-adds do not hide
  double l2_bytes_per_cycle = 0;  ///< per core
  double l3_bytes_per_cycle = 0;  ///< per core, all cores reading
  double memory_core_gbps = 0;    ///< 10^9 bytes per second, one core reading alone
  double memory_gbps = 0;         ///< 10^9 bytes per second, all cores together
  double superstep_seconds = 0;   ///< time of a superstep of all threads beyond its work: starting and
                                  ///< waiting
  uint64_t l1_bytes = 0;          ///< per core
  uint64_t l2_bytes = 0;          ///< per core
  uint64_t l3_bytes = 0;          ///< L3 cache of all cores that share it
  unsigned threads = 1;

  bool operator==(const HostFigures&) const = default;

  double core_gflops() const { return ghz * flops_per_cycle; }
};

/// Conservative built-in figures of a processor with these facts, with kernels restricted to `isa`.
HostFigures builtin_figures(const HostFacts& facts, Isa isa, unsigned threads);

}  // namespace tessera::machine
