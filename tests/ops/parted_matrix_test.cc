// Matrices stored part by part.
#include "ops/parted_matrix.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

namespace tessera::ops {
namespace {

TEST(PartedMatrix, LoadsWhatItStores) {
  for (const auto& [rows, cols] : {std::pair{7U, 5U}, {16U, 33U}, {1U, 1U}, {40U, 3U}, {0U, 4U}, {4U, 0U}})
    for (uint32_t row_slices : {1U, 3U})
      for (uint32_t col_slices : {1U, 2U})
        for (uint32_t parts : {1U, 2U, 5U}) {
          SCOPED_TRACE(
              fmt::format("{} × {}, slices {} × {}, parts {}", rows, cols, row_slices, col_slices, parts));
          const PartedMatrix layout(rows, cols, row_slices, col_slices, parts, 4, parts, 1);
          std::vector<float> matrix(uint64_t{rows} * cols);
          std::iota(matrix.begin(), matrix.end(), 1.0F);
          const std::vector<float> stored = layout.store(matrix);
          EXPECT_EQ(stored.size(), layout.elements());
          std::vector<float> back(matrix.size());
          layout.load(stored, back);
          EXPECT_EQ(back, matrix);
        }
}

TEST(PartedMatrix, PartsLieSideBySideInWholeGrains) {
  const PartedMatrix layout(50, 21, 1, 1, 3, 16, 4, 2);
  uint32_t next = 0;
  for (uint32_t i = 0; i < layout.row_parts(); ++i)
    for (uint32_t j = 0; j < layout.col_parts(); ++j) {
      EXPECT_EQ(layout.begin(i, j), next);
      next += layout.elements_of(i, j);
      if (i + 1 < layout.row_parts()) {
        EXPECT_EQ(layout.rows_of(i) % 16, 0U);
      }
    }
  EXPECT_EQ(next, 50U * 21U);
}

TEST(PartedMatrix, PartsOfPaddedSlicesEndWithTheMatrix) {
  const PartedMatrix layout(13, 22, 2, 3, 2, 4, 3, 1);  // slices of 7 × 8 elements
  EXPECT_EQ(layout.in_matrix(0, 1, 2), (program::Box{4, 3, 5, 3}));
  EXPECT_EQ(layout.in_matrix(5, 1, 2), (program::Box{11, 2, 21, 1}));
}

}  // namespace
}  // namespace tessera::ops
