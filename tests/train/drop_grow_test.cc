// Which blocks are dropped and which are grown.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/drop_grow.h>

#include <set>
#include <utility>

namespace tessera {
namespace {

using Places = std::set<std::pair<uint32_t, uint32_t>>;

Places places_of(const std::vector<BlockPosition>& blocks) {
  Places places;
  for (const BlockPosition& b : blocks)
    EXPECT_TRUE(places.emplace(b.row, b.col).second) << b.row << ", " << b.col;
  return places;
}

/// Blocks (0, 0), (0, 2), (1, 1), (2, 0) of 3 × 3, the last row and column of blocks overhanging 10 × 11.
SparseMatrix small_matrix() {
  SparseMatrix matrix{{10, 11, 4, {0, 2, 3, 4}, {0, 2, 1, 0}}, std::vector<float>(4 * 16)};
  const float sizes[] = {0.5F, -0.1F, 0.3F, -0.2F};
  for (size_t i = 0; i < matrix.values.size(); ++i) matrix.values[i] = sizes[i / 16];
  return matrix;
}

TEST(DropGrow, TheWeakestGoByTheSumOfTheirMagnitudes) {
  const Weight weight = Weight::dynamic(small_matrix(), 6);
  // Of the overhanging blocks only what lies inside the matrix counts: 0.1 · 12, 0.2 · 8.
  EXPECT_EQ(places_of(weakest_blocks(weight, 1)), (Places{{0, 2}}));
  EXPECT_EQ(places_of(weakest_blocks(weight, 2)), (Places{{0, 2}, {2, 0}}));
  EXPECT_EQ(places_of(weakest_blocks(weight, 0)), Places{});
  EXPECT_EQ(weakest_blocks(weight, 9).size(), 4u);
}

TEST(DropGrow, RandomOnesAreEmptyAndFollowFromTheSeed) {
  const Weight weight = Weight::dynamic(small_matrix(), 6);
  const Places stored = {{0, 0}, {0, 2}, {1, 1}, {2, 0}};
  std::set<Places> seen;
  for (uint32_t step = 0; step < 40; ++step) {
    const Places places = places_of(random_empty_blocks(weight, 2, 7, step));
    EXPECT_EQ(places.size(), 2u);
    for (const auto& place : places) EXPECT_EQ(stored.count(place), 0u);
    EXPECT_EQ(places, places_of(random_empty_blocks(weight, 2, 7, step)));
    seen.insert(places);
  }
  EXPECT_GT(seen.size(), 5u);  // of ten pairs
  EXPECT_EQ(random_empty_blocks(weight, 100, 7, 0).size(), 5u);
}

TEST(DropGrow, GrowsWhereTheDenseGradientIsLargest) {
  const Weight weight = Weight::dynamic(small_matrix(), 6);
  std::vector<float> gradient(10 * 11, 0.01F);
  gradient[0] = 100;          // in a stored block
  gradient[5 * 11 + 1] = -3;  // block (1, 0)
  gradient[9 * 11 + 10] = 2;  // block (2, 2), the overhanging corner
  EXPECT_EQ(places_of(strongest_empty_blocks(weight, 1, {gradient.data(), 11})), (Places{{1, 0}}));
  EXPECT_EQ(places_of(strongest_empty_blocks(weight, 2, {gradient.data(), 11})), (Places{{1, 0}, {2, 2}}));
}

TEST(DropGrow, MomentumFollowsTheBlocks) {
  Weight weight = Weight::dynamic(small_matrix(), 4);
  std::vector<float> state(weight.packed_values().begin(), weight.packed_values().end());
  const auto drop = weakest_blocks(weight, 2);
  const auto grow = random_empty_blocks(weight, 2, 3, 0);
  weight.replace(drop, grow).apply(state);
  EXPECT_THAT(state, testing::ElementsAreArray(weight.packed_values()));
  EXPECT_EQ(weight.pattern().blocks(), 4u);
}

}  // namespace
}  // namespace tessera
