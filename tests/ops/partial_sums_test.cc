// Partial sums of products on tiles in 16 bits, rounded to nearest and stochastically.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "ops/run_on_tiles.h"
#include "sparse/blocks/packed_blocks.h"
#include "support/toy_machine.h"

namespace tessera::ops {
namespace {

constexpr uint32_t kRows = 16, kInner = 256, kCols = 3, kParts = 4;

/// Numbers in [0.5, 1) that FP16 can represent.
float number(uint64_t i) { return 0.5F + static_cast<float>(i * 7919 % 509) / 1024; }

/// Terms are positive in the first half of a sum and negative in the second, so that its parts are large
/// beside it.
SparseMatrix weight() {
  SparseMatrix w{sparse::full_pattern(kRows, kInner, 16), std::vector<float>(kRows * kInner)};
  for (size_t i = 0; i < w.values.size(); ++i)
    w.values[i] = i < w.values.size() / 2 ? number(i) : -number(3 * i + 1);
  return w;
}

std::vector<float> factor() {
  std::vector<float> x(kInner * kCols);
  for (size_t i = 0; i < x.size(); ++i) x[i] = number(11 * i + 5);
  return x;
}

std::vector<double> exact() {
  const std::vector<float> w = sparse::to_dense(weight()), x = factor();
  std::vector<double> y(kRows * kCols);
  for (uint32_t i = 0; i < kRows; ++i)
    for (uint32_t c = 0; c < kInner; ++c)
      for (uint32_t j = 0; j < kCols; ++j) y[i * kCols + j] += double{w[i * kInner + c]} * x[c * kCols + j];
  return y;
}

/// A kind of weight, with a grid in which each tile has a part of all sums.
struct Kind {
  bool dense = false;
  std::optional<uint64_t> capacity = {};
  ForcedKnobs grid;
};

std::vector<Kind> kinds() {
  const ForcedKnobs grid = {{"m_parts", 1}, {"k_parts", kParts}, {"n_parts", 1}};
  return {{.dense = true, .grid = grid},
          {.capacity = kInner / 16, .grid = grid},
          {.grid = {{"col_parts", 1}, {"bands", kParts}, {"band_tiles", 1}}}};
}

std::vector<float> multiply(const Kind& kind, Type partials, std::optional<uint64_t> seed,
                            uint32_t threads = 1) {
  const ProductProblem problem{.n = kCols,
                               .type = Type::f16,
                               .partials = partials,
                               .rounding = seed,
                               .dense = kind.dense,
                               .capacity = kind.capacity};
  bound::BoundProduct product(weight(), problem, testing::toy_machine(kParts, 1 << 20), kind.grid);
  std::vector<float> x = factor(), y(kRows * kCols);
  product.run({x.data(), kCols, 1}, {y.data(), kCols, 1}, {.threads = threads});
  return y;
}

double largest_error(const std::vector<float>& found) {
  const std::vector<double> expected = exact();
  double largest = 0;
  for (size_t i = 0; i < found.size(); ++i) largest = std::max(largest, std::abs(found[i] - expected[i]));
  return largest;
}

/// Parts are between 32 and 64, where FP16 has multiples of 2^-5; the sums are below 8.
TEST(PartialSumsOnTiles, InFP32AreRoundedOnce) {
  for (const Kind& kind : kinds()) {
    EXPECT_LE(largest_error(multiply(kind, Type::f32, {})), 0x1p-8);
    EXPECT_GT(largest_error(multiply(kind, Type::f16, {})), 0.01);
  }
}

/// Each of four parts is at most 2^-5 away, with a deviation of at most half of that.
TEST(PartialSumsOnTiles, RoundedStochasticallyAreRightOnAverage) {
  constexpr uint32_t kSeeds = 256;
  const std::vector<double> expected = exact();
  for (const Kind& kind : kinds()) {
    std::vector<double> mean(expected.size());
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const std::vector<float> found = multiply(kind, Type::f16, seed);
      ASSERT_LE(largest_error(found), kParts * 0x1p-5 + 0x1p-8);
      for (size_t i = 0; i < found.size(); ++i) mean[i] += double{found[i]} / kSeeds;
    }
    const double deviation = std::sqrt(kParts) * 0x1p-6 / std::sqrt(kSeeds);
    for (size_t i = 0; i < mean.size(); ++i) EXPECT_NEAR(mean[i], expected[i], 5 * deviation + 0x1p-10) << i;
  }
}

TEST(PartialSumsOnTiles, RoundedStochasticallyDependOnTheSeedAndNotOnThreads) {
  for (const Kind& kind : kinds()) {
    const std::vector<float> found = multiply(kind, Type::f16, 7);
    EXPECT_EQ(multiply(kind, Type::f16, 7), found);
    EXPECT_EQ(multiply(kind, Type::f16, 7, 3), found);
    EXPECT_NE(multiply(kind, Type::f16, 8), found);
    EXPECT_NE(multiply(kind, Type::f16, {}), found);
  }
}

TEST(PartialSumsOnTiles, InFP32AreNotRoundedStochastically) {
  for (const Kind& kind : kinds()) EXPECT_EQ(multiply(kind, Type::f32, 7), multiply(kind, Type::f32, {}));
}

/// A mode of the processor.
TEST(PartialSumsOnTiles, TakeNoTimeToRoundStochastically) {
  for (const Kind& kind : kinds()) {
    const auto cycles = [&](std::optional<uint64_t> seed) {
      const ProductProblem problem{.n = kCols,
                                   .type = Type::f16,
                                   .partials = Type::f16,
                                   .rounding = seed,
                                   .dense = kind.dense,
                                   .capacity = kind.capacity};
      return bound::BoundProduct(weight(), problem, testing::toy_machine(kParts, 1 << 20), kind.grid)
          .estimate()
          .cycles.at;
    };
    EXPECT_EQ(cycles(7), cycles({}));
  }
}

}  // namespace
}  // namespace tessera::ops
