#include <tessera/drop_grow.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "base/random.h"
#include "sparse/pattern.h"

namespace tessera {
namespace {

/// Calls visit(row, column) for each block that is not stored, in order.
template <class Visit>
void each_empty_block(const Pattern& pattern, const Visit& visit) {
  for (uint32_t row = 0; row < pattern.block_rows(); ++row) {
    uint64_t next = pattern.crow_indices[row];
    for (uint32_t col = 0; col < pattern.block_cols(); ++col) {
      const bool stored = next < pattern.crow_indices[row + 1] && pattern.col_indices[next] == col;
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

std::vector<BlockPosition> weakest_blocks(const SparseMatrix& matrix, uint64_t count) {
  const Pattern& pattern = matrix.pattern;
  const uint32_t b = pattern.block_size;
  std::vector<Scored> blocks;
  const float* values = matrix.values.data();
  for (uint32_t row = 0; row < pattern.block_rows(); ++row)
    for (uint64_t i = pattern.crow_indices[row]; i < pattern.crow_indices[row + 1];
         ++i, values += size_t{b} * b) {
      const uint32_t col = pattern.col_indices[i];
      float sum = 0;
      for (uint32_t r = 0; r < std::min(b, pattern.rows - row * b); ++r)
        for (uint32_t c = 0; c < std::min(b, pattern.cols - col * b); ++c) sum += std::abs(values[r * b + c]);
      blocks.push_back({sum, {row, col}});
    }
  return lowest(std::move(blocks), count);
}

std::vector<BlockPosition> weakest_blocks(const Weight& weight, uint64_t count) {
  SparseMatrix matrix{weight.pattern(), {}};
  matrix.values.resize(sparse::stored_values(matrix.pattern));
  weight.get_values(matrix.values);
  return weakest_blocks(matrix, count);
}

std::vector<BlockPosition> random_empty_blocks(const Weight& weight, uint64_t count, uint64_t seed,
                                               uint32_t step) {
  return random_empty_blocks(weight.pattern(), count, seed, step);
}

std::vector<BlockPosition> strongest_empty_blocks(const Weight& weight, uint64_t count,
                                                  MatrixView<const float> dense_gradient) {
  return strongest_empty_blocks(weight.pattern(), count, dense_gradient);
}

std::vector<BlockPosition> random_empty_blocks(const Pattern& pattern, uint64_t count, uint64_t seed,
                                               uint32_t step, uint32_t layer) {
  const base::RandomStream random(seed, step, layer);
  std::vector<Scored> blocks;
  each_empty_block(pattern, [&](uint32_t row, uint32_t col) {
    blocks.push_back({random.uniform(blocks.size()), {row, col}});
  });
  return lowest(std::move(blocks), count);
}

std::vector<BlockPosition> strongest_empty_blocks(const Pattern& pattern, uint64_t count,
                                                  MatrixView<const float> dense_gradient) {
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

Pattern replaced(const Pattern& pattern, std::span<const BlockPosition> drop,
                 std::span<const BlockPosition> grow) {
  std::vector<std::vector<uint32_t>> rows(pattern.block_rows());
  for (uint32_t row = 0; row < pattern.block_rows(); ++row)
    rows[row].assign(
        pattern.col_indices.begin() + static_cast<std::ptrdiff_t>(pattern.crow_indices[row]),
        pattern.col_indices.begin() + static_cast<std::ptrdiff_t>(pattern.crow_indices[row + 1]));
  for (const BlockPosition& block : drop) std::erase(rows.at(block.row), block.col);
  for (const BlockPosition& block : grow) rows.at(block.row).push_back(block.col);
  Pattern result{pattern.rows, pattern.cols, pattern.block_size, {0}, {}};
  for (std::vector<uint32_t>& columns : rows) {
    std::sort(columns.begin(), columns.end());
    result.col_indices.insert(result.col_indices.end(), columns.begin(), columns.end());
    result.crow_indices.push_back(result.col_indices.size());
  }
  sparse::validate(result);
  return result;
}

}  // namespace tessera
