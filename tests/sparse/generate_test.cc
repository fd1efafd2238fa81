#include "sparse/generate.h"

#include <gtest/gtest.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>

#include "sparse/pattern.h"
#include "sparse/shuffle.h"
#include "support/error_of.h"

namespace tessera::sparse {
namespace {

using test::error_of;
using test::says;

constexpr PatternKind kKinds[] = {PatternKind::random, PatternKind::banded, PatternKind::power_law,
                                  PatternKind::shuffled};

std::vector<uint64_t> row_lengths(const Pattern& p) {
  std::vector<uint64_t> lengths(p.block_rows());
  for (size_t r = 0; r < lengths.size(); ++r) lengths[r] = p.crow_indices[r + 1] - p.crow_indices[r];
  return lengths;
}

TEST(Generate, PlacesExactlyTheBlocksAskedFor) {
  for (PatternKind kind : kKinds) {
    for (auto [rows, cols] : {std::pair(0u, 0u),
                              {0u, 9u},
                              {9u, 0u},
                              {1u, 1u},
                              {1u, 200u},
                              {200u, 1u},
                              {64u, 64u},
                              {100u, 333u}}) {
      for (double d : {0.0, 0.001, 1.0 / 32, 0.5, 0.7, 0.999, 1.0}) {
        for (uint32_t b : {1, 4, 16}) {
          const SparseMatrix m = generate({kind, rows, cols, d, b, 3});
          validate(m);
          const double all = static_cast<double>(m.pattern.block_rows()) * m.pattern.block_cols();
          EXPECT_EQ(m.pattern.blocks(), static_cast<uint64_t>(std::round(d * all)))
              << static_cast<int>(kind) << " " << rows << " x " << cols << " d " << d << " b " << b;
        }
      }
    }
  }
}

TEST(Generate, IsAFunctionOfTheSeed) {
  for (PatternKind kind : {PatternKind::random, PatternKind::power_law, PatternKind::shuffled}) {
    const SparseMatrix one = generate({kind, 100, 100, 0.1, 1, 1});
    const SparseMatrix again = generate({kind, 100, 100, 0.1, 1, 1});
    const SparseMatrix two = generate({kind, 100, 100, 0.1, 1, 2});
    EXPECT_EQ(one.pattern.col_indices, again.pattern.col_indices);
    EXPECT_EQ(one.pattern.crow_indices, again.pattern.crow_indices);
    EXPECT_EQ(one.values, again.values);
    EXPECT_NE(one.pattern.col_indices, two.pattern.col_indices);
    EXPECT_NE(one.values, two.values);
  }
}

// FNV-1a over the indices.
uint64_t fingerprint(const Pattern& p) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto mix = [&](uint64_t x) { hash = (hash ^ x) * 0x100000001b3; };
  for (uint64_t x : p.crow_indices) mix(x);
  for (uint64_t x : p.col_indices) mix(x);
  return hash;
}

// The same on every platform.
TEST(Generate, KnownAnswers) {
  EXPECT_EQ(fingerprint(generate_pattern({PatternKind::random, 500, 700, 0.1, 1, 1})), 11555329926377201409U);
  EXPECT_EQ(fingerprint(generate_pattern({PatternKind::random, 500, 700, 0.001, 1, 1})),
            11533280204589811854U);
  EXPECT_EQ(fingerprint(generate_pattern({PatternKind::banded, 500, 700, 0.1, 1, 1})), 7140077940658296687U);
  EXPECT_EQ(fingerprint(generate_pattern({PatternKind::power_law, 500, 700, 0.1, 1, 1})),
            4343372746043156872U);
  EXPECT_EQ(fingerprint(generate_pattern({PatternKind::shuffled, 500, 700, 0.1, 1, 1})),
            1123756863836994220U);
}

// Like std::shuffle of g++ 12's library with its default engine.
TEST(Generate, ShufflesAsThePublishedBenchmark) {
  using Numbers = std::vector<uint32_t>;
  EXPECT_EQ(first_of_shuffled(10, 10, 123), (Numbers{2, 0, 6, 1, 8, 4, 3, 9, 5, 7}));
  EXPECT_EQ(first_of_shuffled(9, 4, 123), (Numbers{3, 0, 8, 7}));
  EXPECT_EQ(first_of_shuffled(3000, 3, 123), (Numbers{2276, 1799, 835}));
  EXPECT_EQ(first_of_shuffled(350'000, 3, 1), (Numbers{131'264, 255'352, 309'648}));
  EXPECT_EQ(first_of_shuffled(1, 1, 0), Numbers{0});
  EXPECT_EQ(first_of_shuffled(0, 0, 0), Numbers{});
}

// Sum of squared deviations over the variance, for counts of `n` draws over the bins.
double chi_square(const std::vector<uint64_t>& counts, double expected, double variance) {
  double sum = 0;
  for (uint64_t count : counts) {
    const double deviation = static_cast<double>(count) - expected;
    sum += deviation * deviation / variance;
  }
  return sum;
}

TEST(GenerateRandom, RowsAndColumnsAreHypergeometric) {
  constexpr uint32_t kSize = 1000;
  for (double d : {0.01, 0.3, 0.8}) {
    const Pattern p = generate_pattern({PatternKind::random, kSize, kSize, d, 1, 5});
    const double expected = d * kSize;
    const double variance = kSize * d * (1 - d);
    // 999 degrees of freedom: 1000 ± 5 standard deviations of √2000.
    EXPECT_NEAR(chi_square(row_lengths(p), expected, variance), kSize, 224) << d;
    EXPECT_NEAR(chi_square(row_lengths(transpose(p).pattern), expected, variance), kSize, 224) << d;
  }
}

TEST(GenerateRandom, SeedsDrawEveryCellEquallyOften) {
  // 6 of the 12 cells of a 3 × 4 matrix, 6000 times: each cell 3000 times.
  std::vector<uint64_t> cells(12);
  for (uint64_t seed = 0; seed < 6000; ++seed) {
    const Pattern p = generate_pattern({PatternKind::random, 3, 4, 0.5, 1, seed});
    for (size_t r = 0; r < 3; ++r) {
      for (uint64_t i = p.crow_indices[r]; i < p.crow_indices[r + 1]; ++i) ++cells[r * 4 + p.col_indices[i]];
    }
  }
  for (uint64_t count : cells) EXPECT_NEAR(static_cast<double>(count), 3000, 5 * 39);
}

TEST(GenerateBanded, RowsAreRunsAroundTheDiagonal) {
  for (auto [rows, cols] : {std::pair(400u, 400u), {100u, 900u}, {900u, 100u}}) {
    const Pattern p = generate_pattern({PatternKind::banded, rows, cols, 0.1, 1, 0});
    const std::vector<uint64_t> lengths = row_lengths(p);
    const auto [least, most] = std::minmax_element(lengths.begin(), lengths.end());
    EXPECT_LE(*most - *least, 1u);
    for (uint32_t r = 0; r < rows; ++r) {
      ASSERT_GT(lengths[r], 0u);
      const uint32_t first = p.col_indices[p.crow_indices[r]];
      const uint32_t last = p.col_indices[p.crow_indices[r + 1] - 1];
      EXPECT_EQ(last - first + 1, lengths[r]);
      const double diagonal = (r + 0.5) * cols / rows;
      EXPECT_LE(first, diagonal);
      EXPECT_GE(last + 1, diagonal);
      const double off_center = std::fabs((first + last + 1) / 2.0 - diagonal);
      const bool at_corner = first == 0 || last + 1 == cols;
      EXPECT_LE(off_center, at_corner ? static_cast<double>(lengths[r]) : 1.5) << r;
    }
  }
}

TEST(GeneratePowerLaw, RowLengthsFollowTheRank) {
  const Pattern p = generate_pattern({PatternKind::power_law, 1000, 5000, 0.005, 1, 6});
  std::vector<uint64_t> lengths = row_lengths(p);
  EXPECT_FALSE(std::is_sorted(lengths.rbegin(), lengths.rend()));
  std::sort(lengths.rbegin(), lengths.rend());
  // 25,000 = scale · H(1000), H(1000) = 7.485.
  const double scale = 25'000 / 7.485;
  for (size_t rank : {1, 2, 5, 20, 100, 500}) {
    EXPECT_NEAR(static_cast<double>(lengths[rank - 1]), scale / static_cast<double>(rank), 70) << rank;
  }
}

TEST(GeneratePowerLaw, FullRowsPassTheRestOn) {
  const Pattern p = generate_pattern({PatternKind::power_law, 100, 50, 0.6, 1, 7});
  std::vector<uint64_t> lengths = row_lengths(p);
  EXPECT_EQ(*std::max_element(lengths.begin(), lengths.end()), 50u);
  EXPECT_GE(std::count(lengths.begin(), lengths.end(), 50u), 10);
}

TEST(Generate, ValuesAreNeverZero) {
  const SparseMatrix m = generate({PatternKind::random, 256, 256, 0.25, 8, 8});
  EXPECT_EQ(m.values.size(), 256u * 64);
  for (float value : m.values) {
    EXPECT_NE(value, 0);
    EXPECT_LT(std::fabs(value), 1);
  }
}

TEST(Generate, SaysWhatIsWrong) {
  const auto message = [](GeneratedMatrix wanted) { return error_of<UsageError>([&] { generate(wanted); }); };
  EXPECT_TRUE(says(message({.rows = 4, .cols = 4, .density = 1.5}), "density 1.5; it must be from 0 to 1"));
  EXPECT_TRUE(says(message({.rows = 4, .cols = 4, .density = -0.1}), "density -0.1"));
  EXPECT_TRUE(says(message({.rows = 4, .cols = 4, .density = NAN}), "density nan"));
  EXPECT_TRUE(says(message({.rows = 0x80000000, .cols = 4}), "at most 2147483647"));
  EXPECT_TRUE(says(message({.rows = 4, .cols = 4, .block_size = 0}), "block size 0"));
  EXPECT_TRUE(says(message({.kind = PatternKind::shuffled, .rows = 100'000, .cols = 100'000}),
                   "at most 2147483645 blocks in a full matrix, not 10000000000"));
  EXPECT_TRUE(says(message({.kind = PatternKind{9}, .rows = 4, .cols = 4}), "unknown kind of pattern: 9"));
}

TEST(Generate, RefusesWhatDoesNotFitInMemory) {
  for (PatternKind kind : kKinds) {
    const std::string message = error_of([&] { generate({kind, 0x7FFFFFFF, 0x7FFFFFFF, 0.5, 1, 0}); });
    EXPECT_TRUE(says(message, "of memory and"));
    EXPECT_TRUE(says(message, "2147483647 x 2147483647 matrix of density 0.5"));
  }
}

TEST(CoverWithBlocks, ChecksItsInput) {
  SparseMatrix m = generate({PatternKind::random, 10, 10, 0.1, 1, 0});
  EXPECT_EQ(cover_with_blocks(m, 4).pattern.block_size, 4u);
  EXPECT_USAGE_ERROR("block size 0", cover_with_blocks(m, 0));
  m.values.pop_back();
  EXPECT_USAGE_ERROR("9 values", cover_with_blocks(m, 4));
}

}  // namespace
}  // namespace tessera::sparse
