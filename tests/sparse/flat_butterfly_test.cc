#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/io.h>

#include <bit>

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
  // The first block row touches cells 0 and 1 of the rows, so those 0 to 3 and 4, 5 of the columns.
  EXPECT_EQ(pattern.columns[pattern.row_begin[1] - 1], (6 * 784 / 8 - 1) / 16);
}

TEST(FlatButterfly, RefusesOtherSizes) {
  const auto message = [](uint32_t size) {
    return test::error_of<UsageError>([&] { flat_butterfly(64, 32, 4, size); });
  };
  EXPECT_TRUE(test::says(message(0), "a butterfly size of 0; it must be a power of two, at most 32"));
  EXPECT_TRUE(test::says(message(12), "a butterfly size of 12"));
  EXPECT_TRUE(test::says(message(64), "a butterfly size of 64"));
}

}  // namespace
}  // namespace tessera
