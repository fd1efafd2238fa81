#include "sparse/elements/rows_of_k_block.h"

#include <algorithm>
#include <array>
#include <utility>

#include "sparse/elements/pack_by_length.h"

namespace tessera::sparse {

namespace {

constexpr uint32_t kNotTaken = UINT32_MAX;

}  // namespace

void RowsOfKBlock::reset(uint32_t rows, uint64_t most_elements) {
  rows_.assign(rows, Row{kNotTaken, 0});
  if (columns_.size() > most_elements) return;
  columns_.resize(most_elements + 1);  // one past those in use is written without effect
  values_.resize(most_elements + 1);
}

namespace {

/// Lists a slice's columns and the places of their values; returns its length.
uint32_t list_slice(const ElementIndex& index, const ElementSlice& slice, uint16_t* columns,
                    uint32_t* places) {
  const SliceColumns of_slice(index, slice);
  auto place = static_cast<uint32_t>(slice.place(0));
  uint32_t length = 0;  // each is written but only kept if it counts: a branch would be mispredicted
  for (uint32_t s = 0; s < slice.unpaired_steps; ++s, place += 2 * kRowGroupLanes) {
    const uint32_t column = of_slice.unpaired(s);
    columns[length] = static_cast<uint16_t>(column);
    places[length] = place;
    length += column != index.k_block ? 1 : 0;
  }
  return length;
}

/// A row's list during edits. Most rows are short: walking an entire row without branches is faster than
/// searching for a position and moving the rest.
struct RowList {
  uint16_t* columns;
  uint32_t* places;
  uint32_t length;

  /// Returns whether it existed.
  bool drop(uint32_t column) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < length; ++i) {
      columns[kept] = columns[i];
      places[kept] = places[i];
      kept += columns[i] != column ? 1 : 0;
    }
    return std::exchange(length, kept) != kept;
  }

  /// Returns whether it was new.
  bool grow(uint32_t column, uint32_t place) {
    uint32_t below = 0, there = 0;
    for (uint32_t i = length; i-- > 0;) {
      const uint16_t c = columns[i];
      const uint32_t to = i + (c > column ? 1 : 0);
      below += c < column ? 1 : 0;
      there += c == column ? 1 : 0;
      columns[to] = c;
      places[to] = places[i];
    }
    columns[below] = static_cast<uint16_t>(column);
    places[below] = place;
    ++length;
    return there == 0;
  }
};

/// Applies the edits of one row to its list. Calls refuse for impossible ones.
template <class Refuse>
void edit_row(std::span<const ElementEdit> edits, uint32_t none, RowList& row, const Refuse& refuse) {
  for (size_t i = 0; i < edits.size(); ++i) {
    const ElementEdit e = edits[i];
    if (i > 0 && edits[i - 1].key == e.key) refuse(e, "it is listed twice");
    if (e.grows()) {
      if (!row.grow(e.column(), none)) refuse(e, "it exists already");
    } else if (!row.drop(e.column())) {
      refuse(e, "it does not exist");
    }
  }
}

}  // namespace

void RowsOfKBlock::take(const ElementIndex& index, uint32_t block, std::span<const ElementEdit> edits,
                        uint32_t none) {
  const uint32_t chunk = block / index.k_blocks(), rows = index.rows_of(chunk);
  const SortedEdits sorted(edits, rows);
  reset(rows, index.blocks[block + 1].value - index.blocks[block].value + edits.size());
  uint32_t size = 0;
  const auto take_row = [&](uint32_t row, const ElementSlice& slice) {
    RowList list{columns_.data() + size, values_.data() + size, 0};
    list.length = list_slice(index, slice, list.columns, list.places);
    edit_row(sorted.of(row), none, list, [&](const ElementEdit& e, const char* why) {
      refuse(uint64_t{index.chunk_begin[chunk]} + row,
             uint64_t{block % index.k_blocks()} * index.k_block + e.column(), e.grows(), why);
    });
    rows_[row] = {size, list.length};
    size += list.length;
  };
  for_each_slice(index, block, take_row);
  // Rows that were empty.
  for (const ElementEdit e : edits)
    if (rows_[e.row()].begin == kNotTaken) take_row(e.row(), {});
  row_group();
}

void RowsOfKBlock::take(const ElementIndex& index, uint32_t block, const Pattern& pattern,
                        const RowSplits& splits, bool finds_values, uint32_t none) {
  const uint32_t chunk = block / index.k_blocks(), k = block % index.k_blocks(), first = k * index.k_block;
  const uint32_t* begin = splits.begin(k) + index.chunk_begin[chunk];
  const uint32_t* end = splits.begin(k + 1) + index.chunk_begin[chunk];
  const uint32_t rows = index.rows_of(chunk);
  uint64_t elements = 0;
  for (uint32_t row = 0; row < rows; ++row) elements += end[row] - begin[row];
  reset(rows, elements);
  // By column, where the last is filler's: the row, counted from 1, and the place of its element.
  std::array<uint64_t, kMaxKBlock + 1> last{};
  uint32_t size = 0;
  const auto take_row = [&](uint32_t row, const ElementSlice& slice) {
    const uint64_t tag = row + uint64_t{1};
    for_each_step(index, slice, [&](uint32_t column, uint64_t place) { last[column] = tag << 32 | place; });
    const uint32_t* from = pattern.col_indices.data() + begin[row];
    const uint32_t length = end[row] - begin[row];
    uint16_t* columns = columns_.data() + size;
    uint32_t* places = values_.data() + size;
    for (uint32_t i = 0; i < length; ++i) {
      const uint64_t found = last[from[i] - first];
      columns[i] = static_cast<uint16_t>(from[i] - first);
      places[i] = found >> 32 == tag ? static_cast<uint32_t>(found) : none;
    }
    rows_[row] = {size, length};
    size += length;
  };
  // Rows of a pattern lie far apart, in an order that no hardware prefetcher follows.
  const auto fetch = [&](const ElementBlock&, const RowGroup* coming) {
    if (coming == nullptr) return;
    for (const uint16_t* of_side : {coming->row_a, coming->row_b})
      for (uint32_t lane = 0; lane < coming->tasks; ++lane) {
        const uint32_t row = std::min<uint32_t>(of_side[lane], rows - 1);
        __builtin_prefetch(pattern.col_indices.data() + begin[row]);
        __builtin_prefetch(pattern.col_indices.data() + end[row]);
      }
  };
  if (finds_values) for_each_slice(index, block, fetch, take_row);
  for (uint32_t row = 0; row < rows; ++row)
    if (rows_[row].begin == kNotTaken && begin[row] < end[row]) take_row(row, {});
  row_group();
}

void RowsOfKBlock::row_group() {
  std::array<uint16_t, kMaxChunkRows> lengths;
  for (size_t row = 0; row < rows_.size(); ++row) lengths[row] = static_cast<uint16_t>(rows_[row].length);
  row_groups_ = group_by_length({lengths.data(), rows_.size()});
  places_ = 0;
  for (const RowGroup& b : row_groups_) places_ += b.value_count();
}

size_t RowsOfKBlock::bytes() const {
  return rows_.size() * sizeof(Row) + columns_.size() * sizeof(uint16_t) + values_.size() * sizeof(uint32_t) +
         row_groups_.size() * sizeof(RowGroup);
}

}  // namespace tessera::sparse
