#include "sparse/elements/element_edits.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <utility>

#include "sparse/parts.h"

namespace tessera::sparse {
namespace {

/// The chunk of each row, or the k-block of each column.
struct BlockOf {
  std::vector<uint32_t> chunk, k_block;

  explicit BlockOf(const ElementIndex& index) : chunk(index.rows), k_block(index.cols) {
    for (uint32_t c = 0; c < index.chunks(); ++c)
      std::fill(chunk.begin() + index.chunk_begin[c], chunk.begin() + index.chunk_begin[c + 1], c);
    for (uint32_t col = 0; col < index.cols; ++col) k_block[col] = col / index.k_block;
  }
};

}  // namespace

void refuse(uint64_t row, uint64_t col, bool grows, const char* why) {
  throw UsageError(
      fmt::format("element ({}, {}) cannot be {}: {}", row, col, grows ? "grown" : "dropped", why));
}

ElementEdits::ElementEdits(const ElementIndex& index, std::span<const BlockPosition> drop,
                           std::span<const BlockPosition> grow, const base::ParallelFor& parallel)
    : edits_(drop.size() + grow.size()) {
  const uint32_t k_blocks = index.k_blocks(), blocks = index.chunks() * k_blocks;
  const BlockOf of(index);
  const auto at = [&](uint32_t i) { return i < drop.size() ? drop[i] : grow[i - drop.size()]; };
  const auto count = static_cast<uint32_t>(edits_.size());
  const uint32_t parts = parts_for(count * sizeof(BlockPosition));
  // Number of edits of each part in each block, and then the position of the next.
  std::vector<std::vector<uint32_t>> next(parts, std::vector<uint32_t>(blocks));
  for_each_part(count, parts, parallel, [&](uint32_t part, uint32_t begin, uint32_t end) {
    for (uint32_t i = begin; i < end; ++i) {
      const BlockPosition p = at(i);
      if (p.row >= index.rows || p.col >= index.cols)
        refuse(p.row, p.col, i >= drop.size(),
               fmt::format("the matrix is {} x {}", index.rows, index.cols).c_str());
      ++next[part][of.chunk[p.row] * k_blocks + of.k_block[p.col]];
    }
  });
  begin_.assign(blocks + size_t{1}, 0);
  uint32_t before = 0;
  for (uint32_t block = 0; block < blocks; ++block) {
    begin_[block] = before;
    for (std::vector<uint32_t>& of_part : next) before += std::exchange(of_part[block], before);
  }
  begin_[blocks] = before;
  for_each_part(count, parts, parallel, [&](uint32_t part, uint32_t begin, uint32_t end) {
    for (uint32_t i = begin; i < end; ++i) {
      const BlockPosition p = at(i);
      const uint32_t chunk = of.chunk[p.row], k = of.k_block[p.col];
      edits_[next[part][chunk * k_blocks + k]++] =
          ElementEdit(p.row - index.chunk_begin[chunk], p.col - k * index.k_block, i >= drop.size());
    }
  });
}

SortedEdits::SortedEdits(std::span<const ElementEdit> edits, uint32_t rows)
    : begin_(rows + size_t{2}), edits_(edits.size()) {
  // Counts are one entry late, and become the position of each row's next edit.
  uint32_t* next = begin_.data() + 1;
  for (const ElementEdit e : edits) ++next[e.row() + 1];
  for (uint32_t row = 0; row < rows; ++row) next[row + 1] += next[row];
  for (const ElementEdit e : edits) edits_[next[e.row()]++] = e;
  for (uint32_t row = 0; row < rows; ++row)
    if (begin_[row + 1] - begin_[row] > 1)
      std::sort(edits_.begin() + begin_[row], edits_.begin() + begin_[row + 1],
                [](ElementEdit a, ElementEdit b) { return a.key < b.key; });
}

}  // namespace tessera::sparse
