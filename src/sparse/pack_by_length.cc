#include "sparse/pack_by_length.h"

#include <algorithm>
#include <array>

namespace tessera::sparse {
namespace {

constexpr uint32_t kBundleRows = 2 * kBundleLanes;

/// Where a value's column stands, in an index without shared steps: there words take half the room
/// of values.
struct ColumnPlace {
  uint64_t word;
  uint32_t half;

  explicit ColumnPlace(uint64_t place)
      : word((place - place % kBundleRows) / 2 + place % kBundleLanes),
        half(place % kBundleRows / kBundleLanes) {}
};

/// What turns filler in one half of a word into a column.
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

/// Packs the transposed matrix of `from`, one k-block of it after the other.
class TransposedPacking {
 public:
  TransposedPacking(const ElementIndex& from, ElementIndex& to, const base::ParallelFor& parallel)
      : from_(from), to_(to), parallel_(parallel), table_(from, parallel) {}

  void run(uint32_t none, std::vector<uint32_t>& source) {
    place_bundles(bundles(), to_, parallel_);
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

  std::vector<std::vector<ElementBundle>> bundles() const {
    std::vector<std::vector<ElementBundle>> bundles(to_.blocks.size() - 1);
    parallel_(to_.k_blocks(), [&](uint32_t k) {
      std::vector<uint16_t> lengths(to_.rows);
      for_each_in(k, [&](uint32_t, uint32_t column, uint64_t) { ++lengths[column]; });
      for (uint32_t chunk = 0; chunk < to_.chunks(); ++chunk)
        bundles[uint64_t{chunk} * to_.k_blocks() + k] =
            bundle_by_length({&lengths[to_.chunk_begin[chunk]], to_.rows_of(chunk)});
    });
    return bundles;
  }

  void write(uint32_t k, uint32_t none, std::vector<uint32_t>& source) {
    std::vector<uint32_t> next(to_.rows);  // place of each row's next element
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
      next[column] += kBundleRows;
      const ColumnPlace at(place);
      to_.words[at.word] ^= column_over_filler(row, to_.k_block, at.half);
      source[place] = static_cast<uint32_t>(from_place);
    });
  }

  const ElementIndex& from_;
  ElementIndex& to_;
  const base::ParallelFor& parallel_;
  SliceTable table_;
  uint64_t used_ = to_.value_count();  ///< by the pattern that was packed there before
};

/// The room that a block has to spare is this part of what it uses, and a bundle's step: lengths of
/// rows chosen at random vary less.
constexpr uint64_t kSpareShare = 32;

/// A block's bundles, and behind them some without tasks for the rest of its room.
void write_bundles(const BlockRows& rows, uint32_t block, ElementIndex& index) {
  auto to = index.bundles.begin() + static_cast<int64_t>(index.blocks[block].bundle);
  const auto end = index.bundles.begin() + static_cast<int64_t>(index.blocks[block + 1].bundle);
  uint64_t spare_steps =
      (index.blocks[block + 1].value - index.blocks[block].value - rows.places()) / kBundleRows;
  ElementBundle spare{};
  const auto none = static_cast<uint16_t>(index.rows_of(block / index.k_blocks()));
  std::fill_n(spare.row_a, kBundleLanes, none);
  std::fill_n(spare.row_b, kBundleLanes, none);
  for (to = std::copy(rows.bundles().begin(), rows.bundles().end(), to); to != end; ++to) {
    spare.apart_steps = static_cast<uint16_t>(std::min<uint64_t>(spare_steps, index.k_block));
    spare_steps -= spare.apart_steps;
    *to = spare;
  }
}

void fetch(const BlockRows& rows, const ElementBundle& coming) {
  for (const uint16_t* of_side : {coming.row_a, coming.row_b})
    for (uint32_t lane = 0; lane < kBundleLanes; ++lane) rows.fetch(of_side[lane]);
}

/// A row of a lane: what it brings to each step.
class LaneRow {
 public:
  LaneRow(const BlockRows& rows, uint32_t row, uint32_t filler, uint32_t none)
      : length_(rows.row(row).length),
        columns_(rows.columns(rows.row(row))),
        values_(rows.values(rows.row(row))),
        filler_(filler),
        none_(none) {}

  // No branches: what stands behind a row is read, and not used.
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

std::vector<ElementBundle> bundle_by_length(std::span<const uint16_t> lengths) {
  const auto rows = static_cast<uint16_t>(lengths.size());
  // Counting sort.
  std::array<uint32_t, kMaxKBlock + 2> begin{};
  for (const uint16_t length : lengths) ++begin[kMaxKBlock - length + 1];
  for (size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
  const uint32_t filled = begin[kMaxKBlock];
  std::array<uint16_t, kMaxChunkRows> order;
  for (uint16_t row = 0; row < rows; ++row) order[begin[kMaxKBlock - lengths[row]]++] = row;

  std::vector<ElementBundle> bundles((filled + kBundleRows - 1) / kBundleRows);
  for (uint32_t first = 0; first < filled; first += kBundleRows) {
    ElementBundle& bundle = bundles[first / kBundleRows];
    const uint32_t count = std::min(kBundleRows, filled - first);
    for (uint32_t i = 0; i < kBundleRows; ++i)
      (i % 2 == 0 ? bundle.row_a : bundle.row_b)[i / 2] = i < count ? order[first + i] : rows;
    bundle.shared_steps = 0;
    bundle.apart_steps = lengths[order[first]];
    bundle.tasks = static_cast<uint16_t>((count + 1) / 2);
  }
  return bundles;
}

uint64_t most_places(const ElementIndex& cut, uint64_t elements) {
  const uint64_t most = elements + kBundleRows * std::min(elements, uint64_t{cut.chunks()} * cut.cols);
  return most - most % kBundleRows;  // whole bundles
}

void reserve(ElementIndex& index, uint64_t elements) {
  const uint64_t places = most_places(index, elements);
  uint64_t bundles = 0;
  for (uint32_t chunk = 0; chunk < index.chunks(); ++chunk)
    bundles += (index.rows_of(chunk) + kBundleRows - 1) / kBundleRows;
  index.bundles.resize(std::min(bundles * index.k_blocks(), places / kBundleRows) + index.blocks.size() - 1);
  index.words.resize(places / 2);
}

bool fits(const BlockRows& rows, const ElementIndex& index, uint32_t block) {
  const ElementBlock& begin = index.blocks[block];
  const ElementBlock& end = index.blocks[block + 1];
  const uint64_t room = end.value - begin.value, bundles = end.bundle - begin.bundle;
  if (rows.places() > room || rows.bundles().size() > bundles) return false;
  const uint64_t spare_steps = (room - rows.places()) / kBundleRows;
  return spare_steps <= (bundles - rows.bundles().size()) * index.k_block;
}

void place(const std::vector<BlockRows>& rows, uint64_t places, ElementIndex& index) {
  uint64_t left = places;
  for (const BlockRows& r : rows) left -= r.places();
  ElementBlock at;
  for (size_t block = 0; block < rows.size(); ++block) {
    index.blocks[block] = at;
    const uint64_t wanted = rows[block].places() / kSpareShare + kBundleRows;
    const uint64_t most =
        std::min<uint64_t>(left / (rows.size() - block), uint64_t{index.k_block} * kBundleRows);
    const uint64_t spare = std::min(wanted, most) / kBundleRows * kBundleRows;
    left -= spare;
    at.bundle += rows[block].bundles().size() + 1;
    at.value += rows[block].places() + spare;
    at.index = at.value / 2;
  }
  index.blocks.back() = at;
}

template <class T>
void write(const BlockRows& rows, uint32_t block, uint32_t none, ElementIndex& index,
           const MovingValues<T>& values, uint32_t* moves) {
  write_bundles(rows, block, index);
  const uint64_t zero = values.former.size() - 1;
  const auto move = [&](uint32_t from, uint64_t to) {
    values.values[to] = values.former[from == none ? zero : from - values.first_place];
    if (moves != nullptr) moves[to] = from;
  };
  ElementBlock at = index.blocks[block];
  const ElementBundle* end = index.bundles.data() + index.blocks[block + 1].bundle;
  for (const ElementBundle* bundle = index.bundles.data() + at.bundle; bundle != end; ++bundle) {
    if (bundle + 1 != end) fetch(rows, bundle[1]);
    for (uint32_t lane = 0; lane < kBundleLanes && bundle->apart_steps > 0; ++lane) {
      const LaneRow a(rows, bundle->row_a[lane], index.k_block, none);
      const LaneRow b(rows, bundle->row_b[lane], index.k_block, none);
      uint32_t* word = &index.words[at.index + lane];
      uint64_t to = at.value + lane;
      for (uint32_t s = 0; s < bundle->apart_steps; ++s, word += kBundleLanes, to += kBundleRows) {
        *word = pack_columns(a.column(s), b.column(s));
        move(a.value(s), to);
        move(b.value(s), to + kBundleLanes);
      }
    }
    at.value += bundle->value_count();
    at.index += bundle->index_count();
  }
}

template void write(const BlockRows&, uint32_t, uint32_t, ElementIndex&, const MovingValues<uint16_t>&,
                    uint32_t*);
template void write(const BlockRows&, uint32_t, uint32_t, ElementIndex&, const MovingValues<uint32_t>&,
                    uint32_t*);

void pack_transposed(const ElementIndex& from, uint32_t none, ElementIndex& index,
                     std::vector<uint32_t>& source, const base::ParallelFor& parallel) {
  TransposedPacking(from, index, parallel).run(none, source);
}

}  // namespace tessera::sparse
