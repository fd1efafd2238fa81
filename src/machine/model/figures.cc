#include "machine/model/figures.h"

#include <algorithm>

namespace tessera::machine {
namespace {

/// Per-cycle rates of a present-day core with an instruction set.
struct CoreRates {
  Isa isa;
  double flops, l1, l2, l3, exposed_loads, bf16;
};

// flops: FP32 multiply-adds on two vector units (generic: multiplies and adds of SSE2). l1: two vector loads
// per cycle. l2, l3: sustained by streaming reads, about two thirds of the peak in the vendors' optimization
// manuals (64 B per cycle from L2 on x86; L3 shared by all). exposed_loads: 512-bit loads and multiply-adds,
// each two per cycle alone, alternate; from the product kernels on a Sapphire-Rapids-like core. bf16: dot
// products of pairs at the rate of multiply-adds (Zen 4 and 5); one in two cycles (Sapphire Rapids); one
// product of tiles, 16 × 16 × 32, in 16 cycles.
constexpr CoreRates kCoreRates[] = {
    {Isa::generic, 8, 32, 16, 8, 0, 0},
    {Isa::neon, 16, 32, 24, 10, 0, 0},
    {Isa::avx2, 32, 64, 32, 10, 0, 0},
    {Isa::avx512, 64, 128, 44, 10, 0.35, 0},
    {Isa::avx512_bf16, 64, 128, 44, 10, 0.35, 128},
    {Isa::avx512_bf16_sparse, 64, 128, 44, 10, 0.35, 32},
    {Isa::amx, 64, 128, 44, 10, 0.35, 1024},
};

constexpr double kDefaultGhz = 2.0;
// A core is limited by its line-fill buffers; a socket by its channels: at least two of DDR4-3200.
constexpr double kMemoryCoreGbps = 10;
constexpr double kMemorySocketGbps = 40;
// Spinning threads take 0.3 to 1 us to start together and detect their end, and up to several us if the
// processor is shared with others.
constexpr double kSuperstepSeconds = 2e-6;

const CoreRates& rates_of(Isa isa) {
  return *std::find_if(std::begin(kCoreRates), std::end(kCoreRates),
                       [&](const CoreRates& rates) { return rates.isa == isa; });
}

}  // namespace

HostFigures builtin_figures(const HostFacts& facts, Isa isa, unsigned threads) {
  const CoreRates& rates = rates_of(isa);
  HostFigures figures;
  figures.isa = isa;
  figures.ghz = facts.nominal_ghz > 0 ? facts.nominal_ghz : kDefaultGhz;
  figures.flops_per_cycle = rates.flops;
  figures.bf16_flops_per_cycle = rates.bf16;
  figures.l1_bytes_per_cycle = rates.l1;
  figures.exposed_loads = rates.exposed_loads;
  figures.l2_bytes_per_cycle = rates.l2;
  figures.l3_bytes_per_cycle = rates.l3;
  figures.memory_core_gbps = kMemoryCoreGbps;
  figures.memory_gbps = std::min(kMemoryCoreGbps * threads, kMemorySocketGbps * facts.sockets);
  figures.superstep_seconds = threads > 1 ? kSuperstepSeconds : 0;
  figures.l1_bytes = facts.l1_bytes;
  figures.l2_bytes = facts.l2_bytes;
  figures.l3_bytes = facts.l3_bytes;
  figures.threads = threads;
  return figures;
}

}  // namespace tessera::machine
