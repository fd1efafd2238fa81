// Overlaps of boxes, compared with all boxes.
#include "program/box_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/random.h"

namespace tessera::program {
namespace {

using Found = std::vector<std::pair<uint32_t, Box>>;

Found sorted(Found found) {
  std::ranges::sort(found, {}, [](const auto& each) { return each.first; });
  return found;
}

Found among_all(const std::vector<Box>& boxes, const Box& query) {
  Found found;
  for (uint32_t i = 0; i < boxes.size(); ++i)
    if (const Box common = intersection(boxes[i], query); !common.empty()) found.emplace_back(i, common);
  return found;
}

Box random_box(base::RandomSequence& random, uint32_t rows, uint32_t cols) {
  return {random.below(rows), random.below(4), random.below(cols), random.below(6)};
}

/// Any boxes, and tiles of a grid; queries in any order, and along rows and columns.
TEST(BoxIndex, FindsTheBoxesThatOverlap) {
  constexpr uint32_t kRows = 12, kCols = 20;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    base::RandomSequence random{base::RandomStream(seed, 10)};
    std::vector<Box> boxes;
    if (seed % 2 == 0) {
      for (uint32_t i = random.below(40); i > 0; --i) boxes.push_back(random_box(random, kRows, kCols));
    } else {
      const uint32_t height = 1 + random.below(3), width = 1 + random.below(3);
      for (uint32_t row = 0; row < kRows; row += height)
        for (uint32_t col = 0; col < kCols; col += width) boxes.push_back({row, height, col, width});
    }
    std::vector<Box> queries;
    for (uint32_t i = 0; i < 30; ++i) queries.push_back(random_box(random, kRows, kCols));
    for (uint32_t row = 0; row < kRows; ++row)
      for (uint32_t col = 0; col < kCols; col += 2) queries.push_back({row, 1, col, 2});
    for (uint32_t col = kCols; col > 0; --col) queries.push_back({0, kRows, col - 1, 1});
    const BoxIndex index(boxes);
    BoxIndex::Cursor cursor;
    for (const Box& query : queries) {
      Found found;
      index.each_overlap(query, cursor,
                         [&](uint32_t i, const Box& common) { found.emplace_back(i, common); });
      ASSERT_EQ(sorted(found), among_all(boxes, query));
    }
  }
}

}  // namespace
}  // namespace tessera::program
