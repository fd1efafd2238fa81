#include "sparse/blocks/block_edits.h"

#include <algorithm>
#include <cstring>

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

constexpr uint32_t kLineBytes = 64;

/// Copies `count` values, usually few; may read and write up to a cache line past the end.
template <class T>
void copy_line_by_line(const T* from, uint32_t count, T* to) {
  constexpr uint32_t kLine = kLineBytes / sizeof(T);
  for (uint32_t i = 0; i < count; i += kLine) std::memcpy(to + i, from + i, kLineBytes);
}

template <class T>
void grow(std::vector<T>& items, uint64_t count) {
  if (items.size() < count) items.resize(count);
}

/// for_each(take) calls take with edits in column order, drops before grows, if all are of rows in [begin,
/// end).
template <class ForEach>
RowEdits sorted_by_row(uint32_t begin, uint32_t end, const ForEach& for_each) {
  RowEdits rows;
  rows.first_row = begin;
  // Counts are one entry late, and become the position of each row's next edit.
  rows.row_begin.assign(size_t{end} - begin + 2, 0);
  uint32_t* next = rows.row_begin.data() + 1;
  for_each([&](const BlockEdit& edit) {
    if (edit.row >= begin && edit.row < end) ++next[edit.row - begin + 1];
  });
  for (uint32_t r = 0; r < end - begin; ++r) next[r + 1] += next[r];
  rows.edits.resize(next[end - begin]);
  for_each([&](const BlockEdit& edit) {
    if (edit.row >= begin && edit.row < end) rows.edits[next[edit.row - begin]++] = edit;
  });
  rows.row_begin.pop_back();
  return rows;
}

}  // namespace

RowEdits edits_of_rows(const Exchange& exchange, uint32_t begin, uint32_t end) {
  RowEdits rows = sorted_by_row(begin, end, [&](const auto& take) {
    for (const BlockPosition& p : exchange.drop) take({p.row, false, p.col});
    for (const BlockPosition& p : exchange.grow) take({p.row, true, p.col});
  });
  for (size_t r = 0; r + 1 < rows.row_begin.size(); ++r)
    std::sort(rows.edits.begin() + rows.row_begin[r], rows.edits.begin() + rows.row_begin[r + 1],
              [](const BlockEdit& a, const BlockEdit& b) {
                return a.col != b.col ? a.col < b.col : a.grows < b.grows;
              });
  return rows;
}

RowEdits edits_of_rows(std::span<const RowEdits> transposed, uint32_t begin, uint32_t end) {
  return sorted_by_row(begin, end, [&](const auto& take) {
    for (const RowEdits& part : transposed)
      for (const BlockEdit& e : part.edits) take({e.col, e.grows, e.row, e.slot});
  });
}

void locate(const BlockIndex& index, std::span<BlockEdit> edits) {
  with_columns(index, [&](const auto* columns) {
    for (BlockEdit& edit : edits) {
      const uint32_t begin = index.row_begin[edit.row];
      edit.at = begin + count_below(columns + begin, index.row_begin[edit.row + 1] - begin, edit.col);
    }
  });
}

Splice::Splice(BlockIndex& index, SpareIndex& spare, uint32_t parts, uint64_t most_grown)
    : index_(index), spare_(spare), parts_(parts), step_(most_grown + kLineBytes) {
  const uint64_t room = index.slots.size() + parts * step_;
  grow(spare.row_begin, index.row_begin.size());
  grow(spare.slots, room);
  grow(spare.columns, room * size_of(index.column_type));
}

void Splice::prepare(uint32_t part, RowEdits& edits) {
  Part& p = parts_[part];
  p.first_row = edits.first_row;
  p.end_row = edits.end_row();
  p.first_block = index_.row_begin[p.first_row];
  with_columns(index_, [&](const auto* columns) { write(columns, edits, begin_of(part)); });
  p.blocks = index_.row_begin[p.end_row] - p.first_block;
  for (uint32_t r = p.first_row; r < p.end_row; ++r) {
    for (const BlockEdit& e : edits.of(r)) p.blocks += e.grows ? 1U : UINT32_MAX;  // modulo 2^32
    spare_.row_begin[r] = p.blocks - (index_.row_begin[p.end_row] - index_.row_begin[r + 1]);
  }
}

template <class Column>
void Splice::write(const Column* columns, RowEdits& edits, uint64_t begin) {
  const uint32_t* slots = index_.slots.data();
  auto* to_columns = reinterpret_cast<Column*>(spare_.columns.data()) + begin;
  uint32_t* to_slots = spare_.slots.data() + begin;
  uint32_t next = index_.row_begin[edits.first_row], to = 0;
  const auto keep_up_to = [&](uint32_t stop) {
    const uint32_t kept = stop > next ? stop - next : 0;  // a block that is dropped and grown is behind
                                                          // `stop`
    if (stop + uint64_t{kLineBytes} > index_.slots.size()) {
      std::copy_n(columns + next, kept, to_columns + to);
      std::copy_n(slots + next, kept, to_slots + to);
    } else {
      copy_line_by_line(columns + next, kept, to_columns + to);
      copy_line_by_line(slots + next, kept, to_slots + to);
    }
    next += kept;
    to += kept;
  };
  for (BlockEdit& edit : edits.edits) {
    keep_up_to(edit.at);
    if (edit.grows) {
      to_columns[to] = static_cast<Column>(edit.col);
      to_slots[to] = edit.slot;
      edit.at = to++;
    } else {
      ++next;
    }
  }
  keep_up_to(index_.row_begin[edits.end_row()]);
}

void Splice::finish(uint32_t part) {
  const Part& p = parts_[part];
  uint32_t first = 0;
  for (uint32_t i = 0; i < part; ++i) first += parts_[i].blocks;
  for (uint32_t r = p.first_row; r < p.end_row; ++r) index_.row_begin[r + 1] = first + spare_.row_begin[r];
  std::copy_n(spare_.slots.data() + begin_of(part), p.blocks, index_.slots.data() + first);
  with_columns(index_, [&](auto* columns) {
    std::copy_n(reinterpret_cast<decltype(columns)>(spare_.columns.data()) + begin_of(part), p.blocks,
                columns + first);
  });
}

}  // namespace tessera::sparse
