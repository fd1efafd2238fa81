#include "base/isa.h"

#include <gtest/gtest.h>
#include <tessera/error.h>

namespace tessera {
namespace {

TEST(Isa, NamesRoundTrip) {
  for (Isa isa : {Isa::generic, Isa::neon, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx})
    EXPECT_EQ(isa_of(name_of(isa)), isa);
  EXPECT_THROW(isa_of("avx9"), UsageError);
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
