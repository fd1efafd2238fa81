#include "sparse/inspect.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/io.h>

#include <limits>

#include "base/half.h"
#include "base/isa.h"
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

/// The places of the non-zeros of an array.
template <class T>
BitMatrix bits_of(const std::vector<T>& values, uint32_t rows, uint32_t cols, bool has_sign_bit) {
  BitMatrix bits(rows, cols);
  for (uint32_t r = 0; r < rows; ++r)
    set_non_zeros({sizeof(T), has_sign_bit},
                  reinterpret_cast<const std::byte*>(values.data() + size_t{r} * cols), cols, bits.row(r));
  return bits;
}

void expect_equal(const Inspection& a, const Inspection& b) {
  EXPECT_EQ(a.rows, b.rows);
  EXPECT_EQ(a.cols, b.cols);
  EXPECT_EQ(a.non_zeros, b.non_zeros);
  EXPECT_DOUBLE_EQ(a.density, b.density);
  EXPECT_EQ(a.zero_rows, b.zero_rows);
  EXPECT_EQ(a.zero_cols, b.zero_cols);
  EXPECT_EQ(a.is_2_4, b.is_2_4);
  ASSERT_EQ(a.coverings.size(), b.coverings.size());
  for (size_t i = 0; i < a.coverings.size(); ++i) {
    EXPECT_EQ(a.coverings[i].block_size, b.coverings[i].block_size);
    EXPECT_EQ(a.coverings[i].blocks, b.coverings[i].blocks);
    EXPECT_DOUBLE_EQ(a.coverings[i].density, b.coverings[i].density);
    EXPECT_DOUBLE_EQ(a.coverings[i].fill_in, b.coverings[i].fill_in);
  }
}

TEST(Inspect, FindsTheSameInArraysAsInPatterns) {
  for (const Isa isa : available_isas()) {
    restrict_isa(isa);
    for (const auto& [rows, cols] : {std::pair{0U, 0U},
                                     {0U, 5U},
                                     {5U, 0U},
                                     {1U, 1U},
                                     {3U, 64U},
                                     {33U, 63U},
                                     {64U, 65U},
                                     {70U, 200U},
                                     {129U, 320U}})
      for (const double density : {0.0, 0.01, 0.3, 1.0}) {
        SCOPED_TRACE(fmt::format("{} x {}, density {}, {}", rows, cols, density, name_of(isa)));
        const SparseMatrix matrix = generate({PatternKind::random, rows, cols, density, 1, 5});
        const BitMatrix bits = bits_of(to_dense(matrix), rows, cols, true);
        expect_equal(inspect(bits), inspect(matrix.pattern));
        for (const uint32_t block_size : {1U, 4U, 8U, 16U, 32U, 64U})
          EXPECT_EQ(pattern_of(bits, block_size), cover(matrix.pattern, block_size)) << block_size;
      }
  }
  restrict_isa(available_isas().back());
}

TEST(Inspect, KnowsWhatIsZero) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), tiny = std::numeric_limits<float>::denorm_min();
  std::vector<float> f32 = {0, -0.0F, nan, tiny, -tiny, 1, -1, std::numeric_limits<float>::infinity()};
  std::vector<double> f64(f32.begin(), f32.end());
  std::vector<base::Half> f16;
  std::vector<base::Bfloat16> bf16;
  for (const float value : f32) {
    f16.push_back(base::to_half(value));
    bf16.push_back(base::to_bfloat16(value));
  }
  constexpr uint64_t kExpected = 0b1111'1100;
  // Also beyond the first word, in which whole vectors are read.
  const auto row = [](auto values, bool has_sign_bit) {
    const size_t count = values.size();
    for (size_t i = 0; i < 64; ++i) values.push_back(values[i % count]);
    const BitMatrix bits = bits_of(values, 1, static_cast<uint32_t>(values.size()), has_sign_bit);
    EXPECT_EQ(bits.row(0)[0] & 0xFF, bits.row(0)[1]);
    EXPECT_EQ(bits.row(0)[0] >> 56, bits.row(0)[1]);
    return bits.row(0)[1];
  };
  EXPECT_EQ(row(f32, true), kExpected);
  EXPECT_EQ(row(f64, true), kExpected);
  constexpr uint64_t kWithoutTiny = 0b1110'0100;  // without numbers that round to zero in 16 bits
  EXPECT_EQ(row(f16, true), kWithoutTiny);
  EXPECT_EQ(row(bf16, true), kWithoutTiny);
  EXPECT_EQ(row(std::vector<uint8_t>{0, 128, 1, 255, 2, 0, 0, 7}, false), 0b1001'1110U);
  EXPECT_EQ(row(std::vector<int16_t>{0, INT16_MIN, 1, -1, 2, 0, 0, 7}, false), 0b1001'1110U);
  EXPECT_EQ(row(std::vector<int64_t>{0, INT64_MIN, 1, -1, 2, 0, 0, 7}, false), 0b1001'1110U);
}

TEST(Inspect, FindsTwoOfFour) {
  std::vector<float> values(3 * 70, 0);
  const auto is_2_4 = [&] {
    const BitMatrix bits = bits_of(values, 3, 70, true);
    const bool found = inspect(bits).is_2_4;
    EXPECT_EQ(inspect(pattern_of(bits, 1)).is_2_4, found);
    return found;
  };
  for (size_t r = 0; r < 3; ++r)
    for (size_t c = 0; c < 70; c += 4) values[r * 70 + c] = values[r * 70 + c + 1] = 1;
  EXPECT_TRUE(is_2_4());
  values[70 + 66] = 1;
  EXPECT_FALSE(is_2_4());
  values[70 + 64] = 0;
  EXPECT_TRUE(is_2_4());
  values[2 * 70 + 3] = values[2 * 70 + 2] = 1;
  EXPECT_FALSE(is_2_4());
}

TEST(Inspect, CountsZeroRowsAndColumns) {
  std::vector<float> values(5 * 100, 0);
  values[100 + 3] = values[3 * 100 + 99] = values[3 * 100 + 3] = 1;
  const Inspection result = inspect(bits_of(values, 5, 100, true));
  EXPECT_EQ(result.zero_rows, 3U);
  EXPECT_EQ(result.zero_cols, 98U);
}

TEST(Inspect, WantsElements) {
  const Pattern blocks = generate({PatternKind::random, 64, 64, 0.5, 4, 4}).pattern;
  EXPECT_USAGE_ERROR("block size 4", inspect(blocks));
}

}  // namespace
}  // namespace tessera::sparse
