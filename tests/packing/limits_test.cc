// Limits of packing, at their boundaries.
#include <gtest/gtest.h>
#include <tessera/packing.h>

#include "support/error_of.h"
#include "support/number_of.h"

namespace tessera::pack {
namespace {

using tessera::test::error_of;
using tessera::test::says;

Histogram single_tokens(uint32_t max_length, uint64_t count) {
  Histogram histogram = Histogram::of_max_length(max_length);
  histogram.counts[1] = count;
  return histogram;
}

std::string error_for(const Histogram& histogram, Algorithm algorithm) {
  return error_of([&] { (void)plan(histogram, {.algorithm = algorithm}); });
}

// Padded to 16 tokens each, 2^59 sequences have 2^63.
TEST(PackingLimits, PaddedTokensStayBelowTwoToThe63) {
  EXPECT_EQ(error_for(single_tokens(16, (uint64_t{1} << 59) - 1), Algorithm::ffd), "(no error)");
  EXPECT_TRUE(says(error_for(single_tokens(16, uint64_t{1} << 59), Algorithm::ffd), "2^63 tokens or more"));
  // Counts whose sum would wrap around.
  Histogram wrapping = single_tokens(16, UINT64_MAX);
  wrapping.counts[2] = 2;
  EXPECT_TRUE(says(error_for(wrapping, Algorithm::ffd), "2^63 tokens or more"));
}

TEST(PackingLimits, APackHasAToken) {
  EXPECT_EQ(error_for(single_tokens(1, 3), Algorithm::ffd), "(no error)");
  EXPECT_TRUE(says(error_for(Histogram::of_max_length(0), Algorithm::ffd), "a pack may have 1 to"));
  EXPECT_TRUE(says(error_for(Histogram{}, Algorithm::ffd), "a pack may have 1 to"));
}

TEST(PackingLimits, LeastSquaresTakes2048Tokens) {
  EXPECT_TRUE(says(error_for(single_tokens(2049, 3), Algorithm::nnlshp), "2048"));
  EXPECT_EQ(error_for(single_tokens(256, 3), Algorithm::nnlshp), "(no error)");
#ifndef TESSERA_SANITIZED  // it would take a minute
  if (test::is_full()) {
    EXPECT_EQ(error_for(single_tokens(2048, 3), Algorithm::nnlshp), "(no error)");
  }
#endif
}

TEST(PackingLimits, LeastSquaresTakesDepthsOfThreeAndAny) {
  for (uint32_t depth : {0U, 1U, 2U, 3U, 4U}) {
    const std::string error = error_of(
        [&] { (void)plan(single_tokens(8, 5), {.algorithm = Algorithm::nnlshp, .max_per_pack = depth}); });
    EXPECT_EQ(error == "(no error)", depth == 0 || depth == 3) << depth << ": " << error;
  }
}

}  // namespace
}  // namespace tessera::pack
