// Weights of adjoint convolutions: the transposed taps of a convolution, each in its place.
#include "sparse/convolution_adjoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "sparse/generate.h"
#include "sparse/pattern.h"
#include "support/random_choices.h"

namespace tessera::sparse {
namespace {

/// Places of the taps of a convolution: any of the adjoint's phases and taps, but never the same for two
/// taps.
AdjointPlaces random_places(uint32_t taps, test::Random& random) {
  AdjointPlaces places{{}, 1 + random.below(4), 1 + random.below(4)};
  while (places.phases * places.taps < taps) ++places.taps;
  for (uint32_t phase = 0; phase < places.phases; ++phase)
    for (uint32_t tap = 0; tap < places.taps; ++tap) places.of.push_back({phase, tap});
  std::ranges::shuffle(places.of, std::mt19937(random.below(1000)));
  places.of.resize(taps);
  return places;
}

TEST(ConvolutionAdjoint, HasTheTapsInTheirPlacesAndTransposed) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    test::Random random(seed);
    const uint32_t b = random.one_of({1U, 2U, 4U}), taps = 1 + random.below(6);
    const uint32_t outputs = b * (1 + random.below(5)), channels = b * (1 + random.below(5));
    const Pattern own = generate_pattern({PatternKind::random, outputs, taps * channels, 0.5, b, seed});
    const AdjointPlaces places = random_places(taps, random);
    ASSERT_TRUE(has_adjoint(own, places));
    const SparseMatrix weight{own, random_values(own, seed)};
    const AdjointConvolution adjoint = adjoint_of(own, places);
    SparseMatrix transposed{adjoint.pattern, std::vector<float>(weight.values.size())};
    for (uint64_t i = 0; i < own.blocks(); ++i)
      for (uint32_t r = 0; r < b; ++r)
        for (uint32_t c = 0; c < b; ++c)
          transposed.values[(i * b + r) * b + c] = weight.values[(adjoint.blocks[i] * b + c) * b + r];
    validate(transposed);
    const std::vector<float> dense = to_dense(weight), found = to_dense(transposed);
    ASSERT_EQ(transposed.pattern.rows, places.phases * channels);
    ASSERT_EQ(transposed.pattern.cols, places.taps * outputs);
    for (uint32_t o = 0; o < outputs; ++o)
      for (uint32_t tap = 0; tap < taps; ++tap)
        for (uint32_t c = 0; c < channels; ++c) {
          const auto [phase, to] = places.of[tap];
          ASSERT_EQ(found[((phase * channels + c) * places.taps + to) * outputs + o],
                    dense[(o * taps + tap) * channels + c])
              << o << ", " << tap << ", " << c;
        }
  }
}

TEST(ConvolutionAdjoint, NeedsWholeBlocksOfOneTap) {
  const auto has = [](uint32_t rows, uint32_t cols, uint32_t block_size, uint32_t taps) {
    AdjointPlaces places{{}, 1, taps};
    for (uint32_t tap = 0; tap < taps; ++tap) places.of.push_back({0, taps - 1 - tap});
    return has_adjoint(Pattern{rows, cols, block_size, {0}, {}}, places);
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
