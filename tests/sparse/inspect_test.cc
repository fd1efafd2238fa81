#include "sparse/inspect.h"

#include <gtest/gtest.h>
#include <tessera/io.h>

#include "sparse/pattern.h"
#include "support/error_of.h"

namespace tessera::sparse {
namespace {

TEST(Inspect, AgreesWithCoveringDirectly) {
  const Pattern p = generate({PatternKind::random, 203, 309, 0.02, 1, 1}).pattern;
  const Inspection result = inspect(p);
  EXPECT_EQ(result.rows, 203u);
  EXPECT_EQ(result.cols, 309u);
  EXPECT_EQ(result.non_zeros, p.blocks());
  EXPECT_DOUBLE_EQ(result.density, density(p));
  ASSERT_EQ(result.coverings.size(), 5u);
  const uint32_t sizes[] = {1, 4, 8, 16, 32};
  for (size_t i = 0; i < 5; ++i) {
    const BlockCovering& covering = result.coverings[i];
    const Pattern direct = cover(p, sizes[i]);
    EXPECT_EQ(covering.block_size, sizes[i]);
    EXPECT_EQ(covering.blocks, direct.blocks());
    EXPECT_DOUBLE_EQ(covering.density, density(direct));
    EXPECT_DOUBLE_EQ(covering.fill_in,
                     static_cast<double>(stored_elements(direct)) / static_cast<double>(p.blocks()));
  }
}

TEST(Inspect, FindsTheBlocksOfABlockPattern) {
  const Pattern blocks = generate({PatternKind::random, 256, 256, 0.125, 16, 2}).pattern;
  const Inspection result = inspect(cover(blocks, 1));
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(result.coverings[i].fill_in, 1) << i;
  EXPECT_GT(result.coverings[4].fill_in, 1.5);
}

TEST(Inspect, TakesEmptyAndFullMatrices) {
  for (const auto& covering : inspect(Pattern{}).coverings) {
    EXPECT_EQ(covering.fill_in, 1);
    EXPECT_EQ(covering.density, 0);
  }
  const Pattern full = generate({PatternKind::random, 30, 50, 1, 1, 3}).pattern;
  for (const auto& covering : inspect(full).coverings) {
    EXPECT_EQ(covering.fill_in, 1);
    EXPECT_EQ(covering.density, 1);
  }
}

TEST(Inspect, WantsElements) {
  const Pattern blocks = generate({PatternKind::random, 64, 64, 0.5, 4, 4}).pattern;
  EXPECT_USAGE_ERROR("block size 4", inspect(blocks));
}

}  // namespace
}  // namespace tessera::sparse
