#include "sparse/block_edits.h"

#include <algorithm>
#include <cstring>
#include <memory>
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
    base += half & (0U - static_cast<uint32_t>(base[half - 1] < col));
    count -= half;
  }
  return static_cast<uint32_t>(base - columns) + static_cast<uint32_t>(*base < col);
}

/// Copies `count` values, most often few, and up to a cache line beyond them.
template <class T>
void copy_line_by_line(const T* from, uint32_t count, T* to) {
  constexpr uint32_t kLine = 64 / sizeof(T);
  for (uint32_t i = 0; i < count; i += kLine) std::memcpy(to + i, from + i, 64);
}

/// An array with a cache line behind it.
template <class T>
std::unique_ptr<T[]> room_for(uint64_t count) {
  return std::make_unique_for_overwrite<T[]>(count + 64 / sizeof(T));
}

template <class Column>
void splice(Column* columns, uint32_t* slots, uint32_t blocks, const std::vector<BlockEdit>& edits) {
  const auto old_columns = room_for<Column>(blocks);
  const auto old_slots = room_for<uint32_t>(blocks);
  std::copy_n(columns, blocks, old_columns.get());
  std::copy_n(slots, blocks, old_slots.get());
  const auto new_columns = room_for<Column>(blocks + edits.size());
  const auto new_slots = room_for<uint32_t>(blocks + edits.size());
  uint32_t from = 0;
  uint32_t to = 0;
  const auto keep_up_to = [&](uint32_t end) {
    const uint32_t kept = end > from ? end - from : 0;  // a block that goes and comes is behind `end`
    copy_line_by_line(old_columns.get() + from, kept, new_columns.get() + to);
    copy_line_by_line(old_slots.get() + from, kept, new_slots.get() + to);
    from += kept;
    to += kept;
  };
  for (const BlockEdit& edit : edits) {
    keep_up_to(edit.at);
    new_columns[to] = static_cast<Column>(edit.col);
    new_slots[to] = edit.slot;
    to += edit.grows ? 1 : 0;
    from += edit.grows ? 0 : 1;
  }
  keep_up_to(blocks);
  std::copy_n(new_columns.get(), to, columns);
  std::copy_n(new_slots.get(), to, slots);
}

}  // namespace

void sort(std::vector<BlockEdit>& edits, uint32_t rows) {
  std::vector<uint32_t> next(size_t{rows} + 1);
  for (const BlockEdit& edit : edits) ++next[edit.row + 1];
  for (uint32_t r = 0; r < rows; ++r) next[r + 1] += next[r];
  std::vector<BlockEdit> by_row(edits.size());
  for (const BlockEdit& edit : edits) by_row[next[edit.row]++] = edit;
  edits = std::move(by_row);
  for (auto begin = edits.begin(); begin != edits.end();) {
    auto end = begin;
    while (end != edits.end() && end->row == begin->row) ++end;
    std::sort(begin, end, [](const BlockEdit& a, const BlockEdit& b) {
      return a.col != b.col ? a.col < b.col : a.grows < b.grows;
    });
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
  const auto blocks = static_cast<uint32_t>(index.blocks());
  with_columns(index, [&](auto* columns) { splice(columns, index.slots.data(), blocks, edits); });
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
