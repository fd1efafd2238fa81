// Weights of convolutions in groups among the zeros of other groups.
#include "sparse/convolution_groups.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "sparse/generate.h"
#include "sparse/pattern.h"
#include "support/random_choices.h"

namespace tessera::sparse {
namespace {

TEST(ConvolutionGroups, PlaceEachElementAmongTheChannelsOfItsGroup) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    test::Random random(seed);
    const uint32_t b = random.one_of({1U, 2U, 4U});
    const ConvolutionGroups of{1 + random.below(4), 1 + random.below(5)};
    const uint32_t outputs = b * (1 + random.below(3)), channels = b * (1 + random.below(3));
    const Pattern own =
        generate_pattern({PatternKind::random, of.groups * outputs, of.taps * channels, 0.5, b, seed});
    const SparseMatrix weight{own, random_values(own, seed)};
    const SparseMatrix whole{ungrouped(own, of), weight.values};
    validate(whole);
    EXPECT_TRUE(is_in_groups(whole.pattern, of));
    const std::vector<float> dense = to_dense(weight), found = to_dense(whole);
    const uint32_t all = of.groups * channels, cols = of.taps * all;
    ASSERT_EQ(whole.pattern.cols, cols);
    for (uint32_t row = 0; row < own.rows; ++row)
      for (uint32_t col = 0; col < cols; ++col) {
        const uint32_t tap = col / all, group = col % all / channels, channel = col % channels;
        const float expected = group == row / outputs ? dense[row * own.cols + tap * channels + channel] : 0;
        ASSERT_EQ(found[row * cols + col], expected) << row << ", " << col;
      }
  }
}

TEST(ConvolutionGroups, FindBlocksOutsideOfThem) {
  const ConvolutionGroups of{2, 3};
  const auto with_block = [](uint32_t block_size, uint32_t row, uint32_t col) {
    Pattern pattern{8, 24, block_size, {0}, {col}};
    for (uint32_t r = 0; r < pattern.block_rows(); ++r) pattern.crow_indices.push_back(r >= row ? 1U : 0U);
    return pattern;
  };
  EXPECT_TRUE(is_in_groups(with_block(1, 3, 11), of));   // the last channel of the first group's second tap
  EXPECT_FALSE(is_in_groups(with_block(1, 3, 12), of));  // the next group's first one
  EXPECT_TRUE(is_in_groups(with_block(1, 4, 12), of));
  EXPECT_FALSE(is_in_groups(with_block(1, 4, 16), of));
  EXPECT_TRUE(is_in_groups(with_block(4, 1, 5), of));
  EXPECT_FALSE(is_in_groups(with_block(4, 0, 5), of));
  EXPECT_FALSE(is_in_groups(with_block(8, 0, 0), of));  // of both groups' outputs
  EXPECT_FALSE(is_in_groups(with_block(1, 0, 0), {3, 3}));
  EXPECT_FALSE(is_in_groups(with_block(1, 0, 0), {0, 3}));
  EXPECT_TRUE(is_in_groups(Pattern{8, 24, 8, {0, 0}, {}}, of));
}

}  // namespace
}  // namespace tessera::sparse
