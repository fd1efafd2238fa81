// Weights of adjoint convolutions: the taps of others in reverse, transposed.
#include "sparse/convolution_adjoint.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "sparse/generate.h"
#include "sparse/pattern.h"
#include "support/random_choices.h"

namespace tessera::sparse {
namespace {

TEST(ConvolutionAdjoint, HasTheTapsInReverseAndTransposed) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    test::Random random(seed);
    const uint32_t b = random.one_of({1U, 2U, 4U}), taps = 1 + random.below(6);
    const uint32_t outputs = b * (1 + random.below(5)), channels = b * (1 + random.below(5));
    const Pattern own = generate_pattern({PatternKind::random, outputs, taps * channels, 0.5, b, seed});
    ASSERT_TRUE(has_adjoint(own, taps));
    const SparseMatrix weight{own, random_values(own, seed)};
    const AdjointConvolution adjoint = adjoint_of(own, taps);
    SparseMatrix transposed{adjoint.pattern, std::vector<float>(weight.values.size())};
    for (uint64_t i = 0; i < own.blocks(); ++i)
      for (uint32_t r = 0; r < b; ++r)
        for (uint32_t c = 0; c < b; ++c)
          transposed.values[(i * b + r) * b + c] = weight.values[(adjoint.blocks[i] * b + c) * b + r];
    validate(transposed);
    const std::vector<float> dense = to_dense(weight), found = to_dense(transposed);
    ASSERT_EQ(transposed.pattern.rows, channels);
    ASSERT_EQ(transposed.pattern.cols, taps * outputs);
    for (uint32_t o = 0; o < outputs; ++o)
      for (uint32_t tap = 0; tap < taps; ++tap)
        for (uint32_t c = 0; c < channels; ++c)
          ASSERT_EQ(found[(c * taps + taps - 1 - tap) * outputs + o], dense[(o * taps + tap) * channels + c])
              << o << ", " << tap << ", " << c;
  }
}

TEST(ConvolutionAdjoint, NeedsWholeBlocksOfOneTap) {
  const auto has = [](uint32_t rows, uint32_t cols, uint32_t block_size, uint32_t taps) {
    return has_adjoint(Pattern{rows, cols, block_size, {0}, {}}, taps);
  };
  EXPECT_TRUE(has(8, 36, 4, 9));
  EXPECT_FALSE(has(10, 36, 4, 9));
  EXPECT_FALSE(has(8, 18, 4, 9));
  EXPECT_FALSE(has(8, 36, 4, 8));
  EXPECT_FALSE(has(8, 36, 4, 0));
  EXPECT_TRUE(has(7, 9, 1, 3));
}

}  // namespace
}  // namespace tessera::sparse
