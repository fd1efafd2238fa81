// Recommendations for weights: their predictions, and the reasons why sparse products do not pay.
#include "ops/sparse/host/advise.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/io.h>

#include <algorithm>

#include "machine/model/machine.h"
#include "ops/sparse/host/spmm.h"
#include "sparse/convolution_groups.h"
#include "sparse/pattern.h"

namespace tessera::ops {
namespace {

Advice advice_for(const Pattern& pattern, uint32_t n, Type type = Type::f32) {
  return Advisor(machine::host(2), n).advise(pattern, sparse::inspect(pattern), type);
}

Pattern random_pattern(uint32_t rows, uint32_t cols, double density, uint32_t block_size = 1) {
  return sparse::cover(generate({PatternKind::random, rows, cols, density, block_size, 7}).pattern, 1);
}

TEST(Advise, RanksTheBlockSizes) {
  const Advice advice = advice_for(random_pattern(512, 512, 0.01), 256);
  ASSERT_GE(advice.sparse.size(), 4U);  // without one that is full
  for (size_t i = 1; i < advice.sparse.size(); ++i)
    EXPECT_LE(advice.sparse[i - 1].seconds, advice.sparse[i].seconds);
  EXPECT_EQ(advice.obstacle, Obstacle::none);
  EXPECT_LT(advice.sparse.front().seconds, advice.dense_seconds);
}

TEST(Advise, FindsTheBlocksOfABlockPattern) {
  const Advice advice = advice_for(random_pattern(1024, 1024, 0.1, 16), 256);
  EXPECT_EQ(advice.sparse.front().block_size, 16U);
  EXPECT_LT(advice.sparse.front().bytes, 1024 * 1024 * sizeof(float) / 8);
}

TEST(Advise, TakesWeightsWithoutNonZeros) {
  const Advice advice = advice_for(random_pattern(64, 64, 0), 16);
  EXPECT_EQ(advice.sparse.size(), 5U);
  EXPECT_EQ(advice.obstacle, Obstacle::none);
}

TEST(Advise, ComparesConvolutionsInGroupsWithProductsOfTheGroups) {
  const ConvolutionGroups of{4, 9};
  const Pattern weight = random_pattern(512, 9 * 64, 0.05);
  Advisor advisor(machine::host(2), 256);
  const Advice advice = advisor.advise_groups(weight, of, Type::f32);
  EXPECT_EQ(advice.sparse.size(), 5U);
  EXPECT_EQ(advice.obstacle, Obstacle::none);
  EXPECT_EQ(advice.dense_seconds, 4 * advice_for(random_pattern(128, 9 * 64, 0.05), 256).dense_seconds);
  const Advice of_whole = advice_for(sparse::ungrouped(weight, of), 256);
  for (const SparseAdvice& each : advice.sparse) {
    const auto same = std::ranges::find(of_whole.sparse, each.block_size, &SparseAdvice::block_size);
    ASSERT_NE(same, of_whole.sparse.end());
    EXPECT_EQ(each.seconds, same->seconds);
    EXPECT_EQ(each.bytes, same->bytes);
  }
  const Advice of_twenty = advisor.advise_groups(random_pattern(512, 9 * 20, 0.05), of, Type::f32);
  EXPECT_EQ(of_twenty.sparse.size(), 2U);  // blocks of 8 would be of two taps
}

TEST(Advise, SaysWhySparseProductsDoNotPay) {
  const auto obstacle = [](uint32_t rows, uint32_t cols, double density, uint32_t n) {
    return advice_for(random_pattern(rows, cols, density), n).obstacle;
  };
  EXPECT_EQ(obstacle(768, 768, 1, 128), Obstacle::too_dense);
  EXPECT_EQ(obstacle(768, 768, 0.9, 128), Obstacle::too_dense);
  EXPECT_EQ(obstacle(2, 16, 1, 1), Obstacle::too_small);
  machine::Machine slow = machine::host(2);
  slow.figures.memory_gbps /= 20;
  slow.figures.memory_core_gbps /= 20;
  const Pattern pattern = random_pattern(16, 16, 1);
  const Advice advice = Advisor(slow, 1 << 20).advise(pattern, sparse::inspect(pattern), Type::f32);
  EXPECT_EQ(advice.obstacle, Obstacle::memory_bound);
}

/// Patterns with many non-zeros are sampled.
TEST(Advise, PredictsWhatPlansDo) {
  for (const Type type : {Type::f32, Type::bf16})
    for (const uint32_t n : {1U, 128U})
      for (const double density : {0.03, 0.1, 0.4})
        for (const auto& [rows, cols] : {std::pair{2048U, 512U}, {512U, 2048U}})
          for (const PatternKind kind : {PatternKind::random, PatternKind::power_law}) {
            SCOPED_TRACE(
                fmt::format("{} x {}, density {}, n = {}, {}", rows, cols, density, n, name_of(type)));
            const Pattern pattern = generate({kind, rows, cols, density, 1, 3}).pattern;
            const Advice advice = advice_for(pattern, n, type);
            const auto elements = std::ranges::find(advice.sparse, 1U, &SparseAdvice::block_size);
            ASSERT_NE(elements, advice.sparse.end());
            const PackedWeight weight{sparse::PackedElements::without_values(pattern, type, {})};
            const double planned = plan_host_product(weight, {.n = n, .type = type}, machine::host(2), {},
                                                     {Layout::column_major, Layout::column_major})
                                       .chosen.total();
            EXPECT_NEAR(elements->seconds / planned, 1, 0.1);
            const auto& packed = std::get<sparse::PackedElements>(weight.form);
            EXPECT_NEAR(static_cast<double>(elements->bytes) /
                            static_cast<double>(packed.places() * size_of(type) + packed.index_bytes()),
                        1, 0.1);
          }
}

}  // namespace
}  // namespace tessera::ops
