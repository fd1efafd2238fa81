#include "sparse/block_edits.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace tessera::sparse {
namespace {

/// How many of `count` ascending columns are below `col`, without branches that depend on them.
template <class Column>
uint32_t count_below(const Column* columns, uint32_t count, uint32_t col) {
  if (count == 0) return 0;
  const Column* base = columns;
  while (count > 1) {
    const uint32_t half = count / 2;
    base += base[half - 1] < col ? half : 0;
    count -= half;
  }
  return static_cast<uint32_t>(base - columns) + static_cast<uint32_t>(*base < col);
}

/// One array of an index, as it becomes: stretches of the old one between what edits bring.
template <class T, class New>
std::vector<T> spliced(const T* old, uint64_t blocks, const std::vector<BlockEdit>& edits, const New& new_of) {
  std::vector<T> result;
  result.reserve(blocks + edits.size());
  uint64_t taken = 0;
  for (const BlockEdit& edit : edits) {
    if (taken < edit.at) {
      result.insert(result.end(), old + taken, old + edit.at);
      taken = edit.at;
    }
    if (edit.grows)
      result.push_back(static_cast<T>(new_of(edit)));
    else
      ++taken;
  }
  result.insert(result.end(), old + taken, old + blocks);
  return result;
}

}  // namespace

void sort(std::vector<BlockEdit>& edits, uint32_t rows) {
  std::vector<uint32_t> next(size_t{rows} + 1);
  for (const BlockEdit& edit : edits) ++next[edit.row + 1];
  for (uint32_t r = 0; r < rows; ++r) next[r + 1] += next[r];
  std::vector<BlockEdit> by_row(edits.size());
  for (const BlockEdit& edit : edits) by_row[next[edit.row]++] = edit;
  edits = std::move(by_row);
  const auto before = [](const BlockEdit& a, const BlockEdit& b) {
    return std::tuple(a.col, a.grows) < std::tuple(b.col, b.grows);
  };
  for (auto begin = edits.begin(); begin != edits.end();) {
    const auto end = std::find_if(begin, edits.end(), [&](const BlockEdit& e) { return e.row != begin->row; });
    std::sort(begin, end, before);
    begin = end;
  }
}

void locate(const BlockIndex& index, std::vector<BlockEdit>& edits) {
  with_columns(index, [&](const auto* columns) {
    for (BlockEdit& edit : edits) {
      const uint32_t begin = index.row_begin[edit.row];
      edit.at = begin + count_below(columns + begin, index.row_begin[edit.row + 1] - begin, edit.col);
    }
  });
}

void splice(BlockIndex& index, const std::vector<BlockEdit>& edits) {
  const uint64_t blocks = index.blocks();
  const auto slots = spliced(index.slots.data(), blocks, edits, [](const BlockEdit& e) { return e.slot; });
  std::copy(slots.begin(), slots.end(), index.slots.begin());
  with_columns(index, [&](auto* columns) {
    const auto changed = spliced(columns, blocks, edits, [](const BlockEdit& e) { return e.col; });
    std::copy(changed.begin(), changed.end(), columns);
  });
  uint32_t added = 0;  // modulo 2^32, as the sums are
  auto edit = edits.begin();
  for (uint32_t r = 0; r < index.rows(); ++r) {
    for (; edit != edits.end() && edit->row == r; ++edit) added += edit->grows ? 1U : UINT32_MAX;
    index.row_begin[r + 1] += added;
  }
}

std::vector<BlockEdit> transpose(std::vector<BlockEdit> edits) {
  for (BlockEdit& edit : edits) std::swap(edit.row, edit.col);
  return edits;
}

}  // namespace tessera::sparse
