#include "sparse/elements/pack_by_length.h"

#include <algorithm>
#include <array>

namespace tessera::sparse {
namespace {

constexpr uint32_t kRowGroupRows = 2 * kRowGroupLanes;

/// Position of a value's column in an index without shared steps: there words take half the space of values.
struct ColumnPlace {
  uint64_t word;
  uint32_t half;

  explicit ColumnPlace(uint64_t place)
      : word((place - place % kRowGroupRows) / 2 + place % kRowGroupLanes),
        half(place % kRowGroupRows / kRowGroupLanes) {}
};

/// Difference between filler and a column, in one half of a word.
uint32_t column_over_filler(uint32_t column, uint32_t filler, uint32_t half) {
  return (kColumnScale * column ^ kColumnScale * filler) << 16 * half;
}

/// The places of a block.
void fill(std::vector<uint32_t>& of_places, const ElementIndex& index, uint64_t block, uint32_t value) {
  std::fill(of_places.begin() + static_cast<int64_t>(index.blocks[block].value),
            of_places.begin() + static_cast<int64_t>(index.blocks[block + 1].value), value);
}

void fill_words(ElementIndex& index, uint64_t block) {
  const auto words = index.words.begin();
  std::fill(words + static_cast<int64_t>(index.blocks[block].index),
            words + static_cast<int64_t>(index.blocks[block + 1].index),
            pack_columns(index.k_block, index.k_block));
}

/// Calls visit(row, column, place) for each element of some rows.
template <class Visit>
void for_each_in_rows(const ElementIndex& index, const SliceTable& table, uint32_t first_row,
                      uint32_t end_row, const Visit& visit) {
  for (uint32_t k = 0; k < index.k_blocks(); ++k) {
    const ElementSlice* slices = table.k_block(k);
    for (uint32_t row = first_row; row < end_row; ++row)
      for_each_element(index, slices[row], [&](uint32_t column, uint64_t place) {
        visit(row, k * index.k_block + column, place);
      });
  }
}

/// Packs the transpose of `from`, one k-block after another.
class TransposedPacking {
 public:
  TransposedPacking(const ElementIndex& from, ElementIndex& to, const base::ParallelFor& parallel)
      : from_(from), to_(to), parallel_(parallel), table_(from, parallel) {}

  void run(uint32_t none, std::vector<uint32_t>& source) {
    place_row_groups(row_groups(), to_, parallel_);
    const uint64_t before = std::min<uint64_t>(source.size(), used_);
    source.resize(std::max<uint64_t>(source.size(), to_.value_count()), none);
    parallel_(to_.k_blocks(), [&](uint32_t k) { write(k, none, source); });
    if (before > to_.value_count())
      std::fill(source.begin() + static_cast<int64_t>(to_.value_count()),
                source.begin() + static_cast<int64_t>(before), none);
  }

 private:
  template <class Visit>
  void for_each_in(uint32_t k_block, const Visit& visit) const {
    const uint32_t first = k_block * to_.k_block;
    for_each_in_rows(
        from_, table_, first, std::min(from_.rows, first + to_.k_block),
        [&](uint32_t row, uint32_t column, uint64_t place) { visit(row - first, column, place); });
  }

  std::vector<std::vector<RowGroup>> row_groups() const {
    std::vector<std::vector<RowGroup>> row_groups(to_.blocks.size() - 1);
    parallel_(to_.k_blocks(), [&](uint32_t k) {
      std::vector<uint16_t> lengths(to_.rows);
      for_each_in(k, [&](uint32_t, uint32_t column, uint64_t) { ++lengths[column]; });
      for (uint32_t chunk = 0; chunk < to_.chunks(); ++chunk)
        row_groups[uint64_t{chunk} * to_.k_blocks() + k] =
            group_by_length({&lengths[to_.chunk_begin[chunk]], to_.rows_of(chunk)});
    });
    return row_groups;
  }

  void write(uint32_t k, uint32_t none, std::vector<uint32_t>& source) {
    std::vector<uint32_t> next(to_.rows);  // position of each row's next element
    for (uint32_t chunk = 0; chunk < to_.chunks(); ++chunk) {
      const uint64_t block = uint64_t{chunk} * to_.k_blocks() + k;
      fill_words(to_, block);
      fill(source, to_, block, none);
      for_each_slice(to_, block, [&](uint16_t row, const ElementSlice& slice) {
        next[to_.chunk_begin[chunk] + row] = static_cast<uint32_t>(slice.place(0));
      });
    }
    for_each_in(k, [&](uint32_t row, uint32_t column, uint64_t from_place) {
      const uint32_t place = next[column];
      next[column] += kRowGroupRows;
      const ColumnPlace at(place);
      to_.words[at.word] ^= column_over_filler(row, to_.k_block, at.half);
      source[place] = static_cast<uint32_t>(from_place);
    });
  }

  const ElementIndex& from_;
  ElementIndex& to_;
  const base::ParallelFor& parallel_;
  SliceTable table_;
  uint64_t used_ = to_.value_count();  ///< by the pattern packed there before
};

/// Each block reserves this fraction of its size, plus a row group's step: lengths of random rows vary less.
constexpr uint64_t kSpareFraction = 32;

/// A block's row groups, followed by empty ones in the rest of its space.
void write_row_groups(const RowsOfKBlock& rows, uint32_t block, ElementIndex& index) {
  auto to = index.row_groups.begin() + static_cast<int64_t>(index.blocks[block].row_group);
  const auto end = index.row_groups.begin() + static_cast<int64_t>(index.blocks[block + 1].row_group);
  uint64_t spare_steps =
      (index.blocks[block + 1].value - index.blocks[block].value - rows.places()) / kRowGroupRows;
  RowGroup spare{};
  const auto none = static_cast<uint16_t>(index.rows_of(block / index.k_blocks()));
  std::fill_n(spare.row_a, kRowGroupLanes, none);
  std::fill_n(spare.row_b, kRowGroupLanes, none);
  for (to = std::copy(rows.row_groups().begin(), rows.row_groups().end(), to); to != end; ++to) {
    spare.unpaired_steps = static_cast<uint16_t>(std::min<uint64_t>(spare_steps, index.k_block));
    spare_steps -= spare.unpaired_steps;
    *to = spare;
  }
}

void fetch(const RowsOfKBlock& rows, const RowGroup& coming) {
  for (const uint16_t* of_side : {coming.row_a, coming.row_b})
    for (uint32_t lane = 0; lane < kRowGroupLanes; ++lane) rows.fetch(of_side[lane]);
}

/// One row of a lane, step by step.
class LaneRow {
 public:
  LaneRow(const RowsOfKBlock& rows, uint32_t row, uint32_t filler, uint32_t none)
      : length_(rows.row(row).length),
        columns_(rows.columns(rows.row(row))),
        values_(rows.values(rows.row(row))),
        filler_(filler),
        none_(none) {}

  // Without branches: elements past the row's end are read but not used.
  uint32_t column(uint32_t step) const {
    const uint32_t column = columns_[std::min(step, length_)];
    return step < length_ ? column : filler_;
  }
  uint32_t value(uint32_t step) const {
    const uint32_t place = values_[std::min(step, length_)];
    return step < length_ ? place : none_;
  }

 private:
  uint32_t length_;
  const uint16_t* columns_;
  const uint32_t* values_;
  uint32_t filler_, none_;
};

}  // namespace

std::vector<RowGroup> group_by_length(std::span<const uint16_t> lengths) {
  const auto rows = static_cast<uint16_t>(lengths.size());
  // Counting sort.
  std::array<uint32_t, kMaxKBlock + 2> begin{};
  for (const uint16_t length : lengths) ++begin[kMaxKBlock - length + 1];
  for (size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
  const uint32_t filled = begin[kMaxKBlock];
  std::array<uint16_t, kMaxChunkRows> order;
  for (uint16_t row = 0; row < rows; ++row) order[begin[kMaxKBlock - lengths[row]]++] = row;

  std::vector<RowGroup> row_groups((filled + kRowGroupRows - 1) / kRowGroupRows);
  for (uint32_t first = 0; first < filled; first += kRowGroupRows) {
    RowGroup& row_group = row_groups[first / kRowGroupRows];
    const uint32_t count = std::min(kRowGroupRows, filled - first);
    for (uint32_t i = 0; i < kRowGroupRows; ++i)
      (i % 2 == 0 ? row_group.row_a : row_group.row_b)[i / 2] = i < count ? order[first + i] : rows;
    row_group.shared_steps = 0;
    row_group.unpaired_steps = lengths[order[first]];
    row_group.tasks = static_cast<uint16_t>((count + 1) / 2);
    for (uint32_t q = 0; q * 2 * kQuarterLanes < count; ++q)
      row_group.quarter_steps[q] = lengths[order[first + q * 2 * kQuarterLanes]];
  }
  return row_groups;
}

uint64_t most_places(const ElementIndex& index, uint64_t elements) {
  const uint64_t most = elements + kRowGroupRows * std::min(elements, uint64_t{index.chunks()} * index.cols);
  return most - most % kRowGroupRows;  // whole row groups
}

void reserve(ElementIndex& index, uint64_t elements) {
  const uint64_t places = most_places(index, elements);
  uint64_t row_groups = 0;
  for (uint32_t chunk = 0; chunk < index.chunks(); ++chunk)
    row_groups += (index.rows_of(chunk) + kRowGroupRows - 1) / kRowGroupRows;
  index.row_groups.resize(std::min(row_groups * index.k_blocks(), places / kRowGroupRows) +
                          index.blocks.size() - 1);
  index.words.resize(places / 2);
}

bool fits(const RowsOfKBlock& rows, const ElementIndex& index, uint32_t block) {
  const ElementBlock& begin = index.blocks[block];
  const ElementBlock& end = index.blocks[block + 1];
  const uint64_t room = end.value - begin.value, row_groups = end.row_group - begin.row_group;
  if (rows.places() > room || rows.row_groups().size() > row_groups) return false;
  const uint64_t spare_steps = (room - rows.places()) / kRowGroupRows;
  return spare_steps <= (row_groups - rows.row_groups().size()) * index.k_block;
}

void place(const std::vector<RowsOfKBlock>& rows, uint64_t places, ElementIndex& index) {
  uint64_t left = places;
  for (const RowsOfKBlock& r : rows) left -= r.places();
  ElementBlock at;
  for (size_t block = 0; block < rows.size(); ++block) {
    index.blocks[block] = at;
    const uint64_t wanted = rows[block].places() / kSpareFraction + kRowGroupRows;
    const uint64_t most =
        std::min<uint64_t>(left / (rows.size() - block), uint64_t{index.k_block} * kRowGroupRows);
    const uint64_t spare = std::min(wanted, most) / kRowGroupRows * kRowGroupRows;
    left -= spare;
    at.row_group += rows[block].row_groups().size() + 1;
    at.value += rows[block].places() + spare;
    at.index = at.value / 2;
  }
  index.blocks.back() = at;
}

template <class Values>
void write(const RowsOfKBlock& rows, uint32_t block, uint32_t none, ElementIndex& index, const Values& values,
           uint32_t* moves) {
  write_row_groups(rows, block, index);
  const auto move = [&](uint32_t from, uint64_t to) {
    values.move(from, none, to);
    if (moves != nullptr) moves[to] = from;
  };
  ElementBlock at = index.blocks[block];
  const RowGroup* end = index.row_groups.data() + index.blocks[block + 1].row_group;
  for (const RowGroup* row_group = index.row_groups.data() + at.row_group; row_group != end; ++row_group) {
    if (row_group + 1 != end) fetch(rows, row_group[1]);
    for (uint32_t lane = 0; lane < kRowGroupLanes && row_group->unpaired_steps > 0; ++lane) {
      const LaneRow a(rows, row_group->row_a[lane], index.k_block, none);
      const LaneRow b(rows, row_group->row_b[lane], index.k_block, none);
      uint32_t* word = &index.words[at.index + lane];
      uint64_t to = at.value + lane;
      for (uint32_t s = 0; s < row_group->unpaired_steps; ++s, word += kRowGroupLanes, to += kRowGroupRows) {
        *word = pack_columns(a.column(s), b.column(s));
        move(a.value(s), to);
        move(b.value(s), to + kRowGroupLanes);
      }
    }
    at.value += row_group->value_count();
    at.index += row_group->index_count();
  }
}

template void write(const RowsOfKBlock&, uint32_t, uint32_t, ElementIndex&, const MovingValues<uint16_t>&,
                    uint32_t*);
template void write(const RowsOfKBlock&, uint32_t, uint32_t, ElementIndex&, const MovingValues<uint32_t>&,
                    uint32_t*);
template void write(const RowsOfKBlock&, uint32_t, uint32_t, ElementIndex&, const NoValues&, uint32_t*);

void pack_transposed(const ElementIndex& from, uint32_t none, ElementIndex& index,
                     std::vector<uint32_t>& source, const base::ParallelFor& parallel) {
  TransposedPacking(from, index, parallel).run(none, source);
}

}  // namespace tessera::sparse
