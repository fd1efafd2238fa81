#include "machine/model/figures.h"

#include <gtest/gtest.h>

namespace tessera::machine {
namespace {

TEST(Figures, EveryInstructionSetHasPositiveRatesThatFallAwayFromTheCore) {
  const HostFacts facts = detect_host();
  for (Isa isa : {Isa::generic, Isa::neon, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::avx512_bf16_sparse,
                  Isa::amx}) {
    const HostFigures figures = builtin_figures(facts, isa, 2);
    EXPECT_EQ(figures.isa, isa);
    EXPECT_GT(figures.ghz, 0);
    EXPECT_GT(figures.flops_per_cycle, 0);
    EXPECT_EQ(figures.bf16_flops_per_cycle > figures.flops_per_cycle, has_fast_bf16_products(isa));
    EXPECT_GT(figures.l1_bytes_per_cycle, figures.l2_bytes_per_cycle);
    EXPECT_GT(figures.l2_bytes_per_cycle, figures.l3_bytes_per_cycle);
    EXPECT_GT(figures.l3_bytes_per_cycle * figures.ghz, figures.memory_core_gbps);
    EXPECT_GE(figures.memory_gbps, figures.memory_core_gbps);
  }
}

TEST(Figures, OneThreadStartsNobodyAndASocketBoundsItsMemory) {
  HostFacts facts;
  facts.sockets = 1;
  EXPECT_EQ(builtin_figures(facts, Isa::avx2, 1).superstep_seconds, 0);
  EXPECT_GT(builtin_figures(facts, Isa::avx2, 2).superstep_seconds, 0);
  const double one_socket = builtin_figures(facts, Isa::avx2, 64).memory_gbps;
  facts.sockets = 2;
  EXPECT_GT(builtin_figures(facts, Isa::avx2, 64).memory_gbps, one_socket);
}

}  // namespace
}  // namespace tessera::machine
