#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/io.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "sparse/pattern.h"
#include "support/error_of.h"

namespace tessera {
namespace {

TEST(FlatButterfly, HasTheParametersOfThePaper) {
  // Shekofteh et al. 2023: e = max(block, N / butterfly), N · e · (log₂(N / e) + 1) elements.
  constexpr uint32_t n = 1024;
  for (uint32_t block = 4; block <= 256; block *= 2)
    for (uint32_t butterfly = 2; butterfly <= 256; butterfly *= 2) {
      const Pattern pattern = flat_butterfly(n, n, block, butterfly);
      sparse::validate(pattern);
      const uint32_t e = std::max(block, n / butterfly);
      EXPECT_EQ(sparse::stored_elements(pattern), uint64_t{n} * e * std::bit_width(n / e))
          << "block " << block << ", butterfly " << butterfly;
    }
}

TEST(FlatButterfly, IsStretchedOverAnyMatrix) {
  const Pattern pattern = flat_butterfly(100, 784, 16, 8);
  sparse::validate(pattern);
  EXPECT_EQ(pattern.block_rows(), 7U);
  // The first block row touches cells 0 and 1 of the rows, and therefore cells 0 to 3 and 4, 5 of the
  // columns.
  EXPECT_EQ(pattern.col_indices[pattern.crow_indices[1] - 1], (6 * 784 / 8 - 1) / 16);
}

/// Whether block (row, col) overlaps an active cell, by real numbers.
bool overlaps(const Pattern& sizes, uint32_t cells, uint32_t row, uint32_t col) {
  const auto range = [&](uint32_t block, uint32_t size) {
    const double from = double(block) * sizes.block_size * cells / size,
                 to = std::min(double(block + 1) * sizes.block_size * cells / size, double(cells));
    return std::pair(static_cast<uint32_t>(from), static_cast<uint32_t>(std::ceil(to)));
  };
  const auto [first_row, last_row] = range(row, sizes.rows);
  const auto [first_col, last_col] = range(col, sizes.cols);
  for (uint32_t i = first_row; i < last_row; ++i)
    for (uint32_t j = first_col; j < last_col; ++j)
      if ((i ^ j) == 0 || std::has_single_bit(i ^ j)) return true;
  return false;
}

TEST(FlatButterfly, HasTheBlocksThatOverlapActiveCells) {
  for (const auto& [rows, cols, block, cells] :
       {std::array{24U, 40U, 4U, 8U}, {100U, 70U, 6U, 8U}, {5U, 9U, 2U, 16U}, {64U, 48U, 16U, 1U}}) {
    const Pattern pattern = flat_butterfly(rows, cols, block, cells);
    sparse::validate(pattern);
    for (uint32_t r = 0; r < pattern.block_rows(); ++r) {
      std::vector<uint32_t> expected;
      for (uint32_t c = 0; c < pattern.block_cols(); ++c)
        if (overlaps(pattern, cells, r, c)) expected.push_back(c);
      EXPECT_TRUE(std::ranges::equal(
          expected,
          std::span(pattern.col_indices)
              .subspan(pattern.crow_indices[r], pattern.crow_indices[r + 1] - pattern.crow_indices[r])))
          << rows << " × " << cols << ", block row " << r;
    }
  }
}

TEST(FlatButterfly, HasTheFirstFactorsOnly) {
  EXPECT_EQ(flat_butterfly(8, 8, 1, 8, {.num_factors = 1}).blocks(), 16u);
  EXPECT_EQ(flat_butterfly(8, 8, 1, 8, {.num_factors = 3}).col_indices,
            flat_butterfly(8, 8, 1, 8).col_indices);
}

TEST(FlatButterfly, RepeatsASquareThatIsNotStretched) {
  const Pattern square = flat_butterfly(32, 32, 8, 4);
  const Pattern tall = flat_butterfly(64, 32, 8, 4, {.stretch = false});
  const Pattern wide = flat_butterfly(32, 96, 8, 4, {.stretch = false});
  sparse::validate(tall);
  sparse::validate(wide);
  for (uint32_t r = 0; r < 8; ++r)
    for (uint64_t i = 0; i < 3; ++i)
      EXPECT_EQ(tall.col_indices[tall.crow_indices[r] + i],
                square.col_indices[square.crow_indices[r % 4] + i]);
  for (uint32_t r = 0; r < 4; ++r)
    for (uint64_t i = 0; i < 9; ++i)
      EXPECT_EQ(wide.col_indices[wide.crow_indices[r] + i],
                square.col_indices[square.crow_indices[r] + i % 3] + 4 * (i / 3));
}

TEST(FlatButterfly, RefusesOtherSizes) {
  const auto message = [](uint32_t size) {
    return test::error_of<UsageError>([&] { flat_butterfly(64, 32, 4, size); });
  };
  EXPECT_TRUE(test::says(message(0), "a butterfly size of 0; it must be a power of two, at most 1048576"));
  EXPECT_TRUE(test::says(message(12), "a butterfly size of 12"));
  EXPECT_TRUE(test::says(message(1 << 21), "a butterfly size of 2097152"));
  const auto error = [](uint32_t rows, FlatButterflyOptions options) {
    return test::error_of<UsageError>([&] { flat_butterfly(rows, 32, 4, 8, options); });
  };
  EXPECT_TRUE(test::says(error(64, {.num_factors = 4}), "4 butterfly factors; 8 cells have 1 to 3"));
  EXPECT_TRUE(test::says(error(48, {.stretch = false}), "12 × 8 blocks repeat no square pattern"));
}

}  // namespace
}  // namespace tessera
