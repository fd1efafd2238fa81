#include "sparse/pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "support/error_of.h"

namespace tessera::sparse {
namespace {

using test::error_of;
using test::says;

// A 3 × 5 matrix with 4 non-zeros.
SparseMatrix small() {
  return {{.rows = 3, .cols = 5, .block_size = 1, .crow_indices = {0, 2, 2, 4}, .col_indices = {1, 4, 0, 3}},
          {1, 2, 3, 4}};
}

// Elements that are non-zero with probability `density`, in a rows × cols array.
std::vector<float> random_dense(uint32_t rows, uint32_t cols, float density, uint64_t seed) {
  const base::RandomStream keep(seed, 0);
  const base::RandomStream value(seed, 1);
  std::vector<float> dense(size_t{rows} * cols);
  for (size_t i = 0; i < dense.size(); ++i) {
    dense[i] = keep.uniform(i) < density ? value.symmetric(i) : 0;
  }
  return dense;
}

SparseMatrix random_matrix(uint32_t rows, uint32_t cols, float density, uint64_t seed) {
  const std::vector<float> dense = random_dense(rows, cols, density, seed);
  return from_dense(row_major(dense.data(), cols), rows, cols);
}

TEST(ValidatePattern, AcceptsWhatIsSound) {
  EXPECT_NO_THROW(validate(small()));
  EXPECT_NO_THROW(validate(Pattern{}));
  EXPECT_NO_THROW(validate(
      Pattern{.rows = 5, .cols = 9, .block_size = 4, .crow_indices = {0, 1, 2}, .col_indices = {2, 2}}));
}

TEST(ValidatePattern, SaysWhatIsWrong) {
  const auto message = [](auto damage) {
    SparseMatrix m = small();
    damage(m);
    return error_of<UsageError>([&] { validate(m); });
  };
  EXPECT_TRUE(says(message([](auto& m) { m.pattern.rows = 0x80000000; }), "at most 2147483647"));
  EXPECT_TRUE(says(message([](auto& m) { m.pattern.block_size = 0; }), "block size 0"));
  EXPECT_TRUE(says(message([](auto& m) { m.pattern.crow_indices.pop_back(); }), "has 3 entries"));
  EXPECT_TRUE(says(message([](auto& m) { m.pattern.crow_indices.clear(); }), "has 0 entries"));
  EXPECT_TRUE(says(message([](auto& m) { m.pattern.crow_indices[0] = 1; }), "crow_indices[0] is 1"));
  EXPECT_TRUE(says(message([](auto& m) { m.pattern.crow_indices[1] = 3; }), "from 3 to 2 at block row 1"));
  EXPECT_TRUE(says(message([](auto& m) { m.pattern.crow_indices[1] = 100; }), "from 100 to 2"));
  EXPECT_TRUE(says(message([](auto& m) { m.pattern.crow_indices[3] = 5; }), "ends with 5"));
  EXPECT_TRUE(says(message([](auto& m) { m.pattern.col_indices[1] = 5; }), "in column 5; there are 5"));
  EXPECT_TRUE(says(message([](auto& m) { m.pattern.col_indices[1] = 1; }), "column 1 comes after 1"));
  EXPECT_TRUE(says(message([](auto& m) { m.pattern.col_indices[2] = 4; }), "column 3 comes after 4"));
  EXPECT_TRUE(says(message([](auto& m) { m.values.pop_back(); }), "3 values; 4 blocks"));
}

TEST(Density, CountsOnlyWhatLiesInsideTheMatrix) {
  EXPECT_EQ(stored_elements(small().pattern), 4u);
  EXPECT_DOUBLE_EQ(density(small().pattern), 4.0 / 15);
  EXPECT_EQ(density(Pattern{}), 0);
  // Blocks of 4 in a 5 × 9 matrix: a whole one, and a corner with one element inside the matrix.
  const Pattern overhanging{
      .rows = 5, .cols = 9, .block_size = 4, .crow_indices = {0, 1, 2}, .col_indices = {0, 2}};
  EXPECT_EQ(stored_elements(overhanging), 17u);
}

TEST(Dense, RoundTrip) {
  const std::vector<float> dense = random_dense(13, 17, 0.3F, 1);
  const SparseMatrix m = from_dense(row_major(dense.data(), 17), 13, 17);
  validate(m);
  EXPECT_EQ(to_dense(m), dense);
  EXPECT_EQ(std::count(m.values.begin(), m.values.end(), 0.0F), 0);
}

TEST(Dense, ReadsColumnMajorAndKeepsNan) {
  const std::vector<float> dense = {0, NAN, -0.0F, 2, 0, INFINITY};
  const SparseMatrix m = from_dense(column_major(dense.data(), 3), 3, 2);
  EXPECT_EQ(m.pattern.col_indices, (std::vector<uint32_t>{1, 0, 1}));
  EXPECT_EQ(m.values[0], 2);
  EXPECT_TRUE(std::isnan(m.values[1]));
  EXPECT_TRUE(std::isinf(m.values[2]));
}

struct Shape {
  uint32_t rows, cols;
};
constexpr Shape kShapes[] = {{0, 0}, {0, 5}, {5, 0}, {1, 1}, {1, 40}, {40, 1}, {16, 16}, {33, 70}};

TEST(Cover, KeepsEveryElementAndNoEmptyBlock) {
  for (const Shape shape : kShapes) {
    for (float d : {0.0F, 0.05F, 1.0F}) {
      const SparseMatrix m = random_matrix(shape.rows, shape.cols, d, 2);
      for (uint32_t b : {1, 3, 4, 8, 32, 100}) {
        const SparseMatrix covered = cover(m, b);
        validate(covered);
        EXPECT_EQ(covered.pattern.col_indices, cover(m.pattern, b).col_indices);
        EXPECT_EQ(to_dense(covered), to_dense(m)) << shape.rows << " x " << shape.cols << " b " << b;
        for (uint64_t i = 0; i < covered.pattern.blocks(); ++i) {
          const auto* block = covered.values.data() + i * b * b;
          EXPECT_TRUE(std::any_of(block, block + b * b, [](float v) { return v != 0; }));
        }
      }
    }
  }
}

TEST(Cover, TakesBlocksOfOtherSizes) {
  const SparseMatrix m = random_matrix(50, 45, 0.05F, 3);
  const SparseMatrix eights = cover(m, 8);
  for (uint32_t b : {1, 4, 6, 16}) {
    const SparseMatrix covered = cover(eights, b);
    validate(covered);
    EXPECT_EQ(to_dense(covered), to_dense(m)) << b;
  }
  EXPECT_EQ(cover(eights, 16).pattern.col_indices, cover(m, 16).pattern.col_indices);
}

TEST(Cover, FillsWithZerosOnly) {
  SparseMatrix m = small();
  m.values[0] = NAN;
  const SparseMatrix covered = cover(m, 4);
  const auto zeros = std::count(covered.values.begin(), covered.values.end(), 0.0F);
  EXPECT_EQ(static_cast<size_t>(zeros), covered.values.size() - 4);
}

TEST(Transpose, IsTheTransposeAndItsOwnInverse) {
  for (const Shape shape : kShapes) {
    for (uint32_t b : {1, 4}) {
      const SparseMatrix m = cover(random_matrix(shape.rows, shape.cols, 0.2F, 4), b);
      const SparseMatrix t = transpose(m);
      validate(t);
      const std::vector<float> dense = to_dense(m);
      const std::vector<float> turned = to_dense(t);
      for (size_t i = 0; i < shape.rows; ++i) {
        for (size_t j = 0; j < shape.cols; ++j) {
          ASSERT_EQ(dense[i * shape.cols + j], turned[j * shape.rows + i]);
        }
      }
      const SparseMatrix back = transpose(t);
      EXPECT_EQ(back.pattern.crow_indices, m.pattern.crow_indices);
      EXPECT_EQ(back.pattern.col_indices, m.pattern.col_indices);
      EXPECT_EQ(back.values, m.values);
    }
  }
}

TEST(Transpose, SourceFindsTheOriginalBlock) {
  const Pattern p = random_matrix(20, 30, 0.2F, 5).pattern;
  const TransposedPattern t = transpose(p);
  for (uint32_t c = 0; c < p.cols; ++c) {
    for (uint64_t i = t.pattern.crow_indices[c]; i < t.pattern.crow_indices[c + 1]; ++i) {
      const uint32_t r = t.pattern.col_indices[i];
      EXPECT_EQ(p.col_indices[t.source[i]], c);
      EXPECT_GE(t.source[i], p.crow_indices[r]);
      EXPECT_LT(t.source[i], p.crow_indices[r + 1]);
    }
  }
}

TEST(Coordinates, MakeAMatrixInAnyOrder) {
  const std::vector<float> dense = random_dense(30, 20, 0.3F, 6);
  Coordinates elements;
  for (uint32_t i = 0; i < dense.size(); ++i) {
    if (dense[i] == 0) continue;
    elements.rows.push_back(i / 20);
    elements.cols.push_back(i % 20);
    elements.values.push_back(dense[i]);
  }
  base::RandomSequence random(base::RandomStream(7));
  for (uint32_t i = static_cast<uint32_t>(elements.rows.size()); i > 1; --i) {
    const uint32_t j = random.below(i);
    std::swap(elements.rows[i - 1], elements.rows[j]);
    std::swap(elements.cols[i - 1], elements.cols[j]);
    std::swap(elements.values[i - 1], elements.values[j]);
  }
  const SparseMatrix m = from_dense(row_major(dense.data(), 20), 30, 20);
  const SparseMatrix found = from_coordinates(30, 20, elements);
  EXPECT_EQ(found.pattern.col_indices, m.pattern.col_indices);
  EXPECT_EQ(found.pattern.crow_indices, m.pattern.crow_indices);
  EXPECT_EQ(found.values, m.values);
}

TEST(Coordinates, SayWhatIsWrong) {
  const auto message = [](Coordinates elements) {
    return error_of<UsageError>([&] { from_coordinates(3, 4, elements); });
  };
  EXPECT_TRUE(says(message({{0, 1}, {0}, {1, 2}}), "2 row indices, 1 column indices and 2 values"));
  EXPECT_TRUE(says(message({{3}, {0}, {1}}), "(3, 0) is outside the matrix of 3 x 4"));
  EXPECT_TRUE(says(message({{0}, {4}, {1}}), "(0, 4) is outside"));
  EXPECT_TRUE(says(message({{1, 0, 1}, {2, 0, 2}, {1, 2, 3}}), "each once"));
}

}  // namespace
}  // namespace tessera::sparse
