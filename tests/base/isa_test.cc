#include "base/isa.h"

#include <gtest/gtest.h>
#include <tessera/error.h>

namespace tessera {
namespace {

TEST(Isa, NamesRoundTrip) {
  for (Isa isa :
       {Isa::generic, Isa::neon, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::avx512_bf16_sparse, Isa::amx})
    EXPECT_EQ(isa_of(name_of(isa)), isa);
  EXPECT_THROW(isa_of("avx9"), UsageError);
}

TEST(Isa, OnlyTilesAndFastDotProductsSpeedUpDenseProducts) {
  for (Isa isa : {Isa::generic, Isa::neon, Isa::avx2, Isa::avx512, Isa::avx512_bf16_sparse})
    EXPECT_FALSE(has_fast_bf16_products(isa)) << name_of(isa);
  for (Isa isa : {Isa::avx512_bf16, Isa::amx}) EXPECT_TRUE(has_fast_bf16_products(isa)) << name_of(isa);
}

TEST(Isa, IsMissingOnlyIfTheBuildHasNone) {
  EXPECT_TRUE(missing_isa().empty() || available_isas() == std::vector{Isa::generic});
}

TEST(Isa, RestrictingReachesTheDispatch) {
  for (Isa isa : available_isas()) {
    restrict_isa(isa);
    EXPECT_EQ(active_isa(), isa);
  }
  EXPECT_EQ(active_isa(), available_isas().back());
}

}  // namespace
}  // namespace tessera
