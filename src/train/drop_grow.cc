#include <tessera/training.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>

#include "base/random.h"

namespace tessera {
namespace {

/// Calls visit(row, column) for each block that is not stored, in order.
template <class Visit>
void each_empty_block(const Pattern& pattern, const Visit& visit) {
  for (uint32_t row = 0; row < pattern.block_rows(); ++row) {
    uint64_t next = pattern.row_begin[row];
    for (uint32_t col = 0; col < pattern.block_cols(); ++col) {
      const bool stored = next < pattern.row_begin[row + 1] && pattern.columns[next] == col;
      if (stored)
        ++next;
      else
        visit(row, col);
    }
  }
}

struct Scored {
  float score;
  BlockPosition block;
};

/// The `count` blocks with the lowest scores, in matrix order; ties go to the first.
std::vector<BlockPosition> lowest(std::vector<Scored> blocks, uint64_t count) {
  const auto before = [](const BlockPosition& a, const BlockPosition& b) {
    return a.row != b.row ? a.row < b.row : a.col < b.col;
  };
  const auto end = blocks.begin() + static_cast<std::ptrdiff_t>(std::min<uint64_t>(count, blocks.size()));
  std::nth_element(blocks.begin(), end == blocks.end() ? blocks.begin() : end, blocks.end(),
                   [&](const Scored& a, const Scored& b) {
                     return a.score != b.score ? a.score < b.score : before(a.block, b.block);
                   });
  std::vector<BlockPosition> chosen;
  std::transform(blocks.begin(), end, std::back_inserter(chosen), [](const Scored& s) { return s.block; });
  std::sort(chosen.begin(), chosen.end(), before);
  return chosen;
}

}  // namespace

std::vector<BlockPosition> weakest_blocks(const Weight& weight, uint64_t count) {
  const Pattern pattern = weight.pattern();
  const size_t size = size_t{pattern.block_size} * pattern.block_size;
  std::vector<float> values(pattern.blocks() * size);
  weight.get_values(values);
  std::vector<Scored> blocks;
  for (uint32_t row = 0; row < pattern.block_rows(); ++row)
    for (uint64_t i = pattern.row_begin[row]; i < pattern.row_begin[row + 1]; ++i) {
      float sum = 0;
      for (const float value : std::span(values).subspan(i * size, size)) sum += std::abs(value);
      blocks.push_back({sum, {row, pattern.columns[i]}});
    }
  return lowest(std::move(blocks), count);
}

std::vector<BlockPosition> random_empty_blocks(const Weight& weight, uint64_t count, uint64_t seed,
                                               uint32_t step) {
  const base::RandomStream random(seed, step);
  std::vector<Scored> blocks;
  each_empty_block(weight.pattern(), [&](uint32_t row, uint32_t col) {
    blocks.push_back({random.uniform(blocks.size()), {row, col}});
  });
  return lowest(std::move(blocks), count);
}

std::vector<BlockPosition> strongest_empty_blocks(const Weight& weight, uint64_t count,
                                                  MatrixView<const float> dense_gradient) {
  const Pattern pattern = weight.pattern();
  const uint32_t b = pattern.block_size;
  std::vector<Scored> blocks;
  each_empty_block(pattern, [&](uint32_t row, uint32_t col) {
    float sum = 0;
    for (uint32_t i = row * b; i < std::min(pattern.rows, (row + 1) * b); ++i)
      for (uint32_t j = col * b; j < std::min(pattern.cols, (col + 1) * b); ++j)
        sum += std::abs(dense_gradient(i, j));
    blocks.push_back({-sum, {row, col}});
  });
  return lowest(std::move(blocks), count);
}

}  // namespace tessera
