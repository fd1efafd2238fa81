#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/io.h>

#include "sparse/pattern.h"
#include "support/error_of.h"

namespace tessera {
namespace {

/// How many paths lead through the factors to each block row from each block column.
std::vector<uint32_t> paths_through(const std::vector<Pattern>& factors) {
  const uint32_t cols = factors.front().block_cols();
  std::vector<uint32_t> paths(size_t{cols} * cols);
  for (uint32_t i = 0; i < cols; ++i) paths[i * cols + i] = 1;
  for (const Pattern& factor : factors) {
    std::vector<uint32_t> next(size_t{factor.block_rows()} * cols);
    for (uint32_t row = 0; row < factor.block_rows(); ++row)
      for (uint64_t b = factor.crow_indices[row]; b < factor.crow_indices[row + 1]; ++b)
        for (uint32_t i = 0; i < cols; ++i) next[row * cols + i] += paths[factor.col_indices[b] * cols + i];
    paths = std::move(next);
  }
  return paths;
}

TEST(BlockButterfly, HasOnePathFromEachInputToEachOutput) {
  constexpr struct {
    uint32_t rows, cols, block_size;
  } kCases[] = {{64, 64, 8},  {64, 64, 1}, {100, 784, 16}, {784, 100, 16},
                {10, 300, 4}, {8, 8, 8},   {7, 5, 16},     {33, 17, 16}};
  for (const auto& c : kCases) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.cols << " in blocks of " << c.block_size);
    const std::vector<Pattern> factors = block_butterfly(c.rows, c.cols, c.block_size);
    for (const Pattern& factor : factors) sparse::validate(factor);
    EXPECT_EQ(factors.front().cols, c.cols);
    EXPECT_EQ(factors.back().rows, c.rows);
    for (size_t i = 1; i < factors.size(); ++i) EXPECT_EQ(factors[i].cols, factors[i - 1].rows);
    for (const uint32_t paths : paths_through(factors)) EXPECT_EQ(paths, 1U);
  }
}

TEST(BlockButterfly, HasTwoBlocksForEachRowOfEachFactor) {
  const std::vector<Pattern> factors = block_butterfly(1024, 1024, 32);
  ASSERT_EQ(factors.size(), 5U);
  for (const Pattern& factor : factors) EXPECT_EQ(sparse::stored_elements(factor), uint64_t{1024} * 2 * 32);
}

TEST(BlockButterfly, RefusesSizesWithTooManyFeatures) {
  const auto message = [](uint32_t rows, uint32_t cols, uint32_t block_size) {
    return test::error_of<UsageError>([&] { block_butterfly(rows, cols, block_size); });
  };
  EXPECT_TRUE(test::says(message(0, 4, 4), "a block butterfly of 0 × 4; both must be at least 1"));
  EXPECT_TRUE(test::says(message(4, 4, 0), "block size 0"));
  EXPECT_TRUE(test::says(message(0x7FFFFFFF, 0x7FFFFFFF, 256), "use smaller blocks"));
}

}  // namespace
}  // namespace tessera
