#include "sparse/pack_by_length.h"

#include <algorithm>
#include <array>

namespace tessera::sparse {
namespace {

constexpr uint32_t kBundleRows = 2 * kBundleLanes;

/// Where a value's column stands, in an index without shared steps: there words take half the room of
/// values.
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

/// Writes the blocks of a pattern whose bundles are in place.
class BlockWriter {
 public:
  BlockWriter(const Pattern& pattern, const RowCuts& cuts, ElementIndex& index)
      : columns_(pattern.columns.data()), cuts_(cuts), index_(index) {}

  void write(uint32_t block) const {
    const Rows rows = rows_of(cuts_, block);
    const auto fetch = [&](uint16_t row) { rows.fetch(columns_, row); };
    const auto clear = [](uint64_t, size_t) {};
    write_slices(block, clear, fetch, [&](uint16_t row, const ElementSlice& slice) {
      uint32_t* word = &index_.words[slice.word + slice.lane];
      for (uint32_t i = rows.begin[row]; i < rows.end[row]; ++i, word += kBundleLanes)
        *word ^= column_over_filler(columns_[i] - first_column(block), index_.k_block, slice.side);
    });
  }

  /// Finds moves at the same time.
  void write(uint32_t block, const FormerPattern& former, std::vector<uint32_t>& moves) const {
    const Rows rows = rows_of(cuts_, block);
    const uint32_t first = first_column(block);
    std::vector<ElementSlice> former_slices(index_.rows_of(block / index_.k_blocks()));
    for_each_slice(former.index, block,
                   [&](uint16_t row, const ElementSlice& slice) { former_slices[row] = slice; });
    // By column, the last being filler's: the row, counted from 1, and the former place of its element.
    std::array<uint64_t, kMaxKBlock + 1> last{};
    const auto fetch = [&](uint16_t row) { rows.fetch(columns_, row); };
    const auto clear = [&](uint64_t place, size_t count) { std::fill_n(&moves[place], count, former.none); };
    write_slices(block, clear, fetch, [&](uint16_t row, const ElementSlice& slice) {
      const uint64_t tag = row + uint64_t{1};
      for_each_step(former.index, former_slices[row],
                    [&](uint32_t column, uint64_t place) { last[column] = tag << 32 | place; });
      uint32_t* word = &index_.words[slice.word + slice.lane];
      uint32_t* move = &moves[slice.place(0)];
      for (uint32_t i = rows.begin[row]; i < rows.end[row]; ++i, word += kBundleLanes, move += kBundleRows) {
        const uint32_t column = columns_[i] - first;
        *word ^= column_over_filler(column, index_.k_block, slice.side);
        *move = last[column] >> 32 == tag ? static_cast<uint32_t>(last[column]) : former.none;
      }
    });
  }

 private:
  /// Positions of the elements of a chunk's rows in a k-block.
  struct Rows {
    const uint32_t* begin;
    const uint32_t* end;

    /// They lie far apart, in an order that no hardware prefetcher follows.
    void fetch(const uint32_t* columns, uint16_t row) const {
      __builtin_prefetch(columns + begin[row]);
      __builtin_prefetch(columns + end[row]);
    }
  };

  uint32_t first_row(uint32_t block) const { return index_.chunk_begin[block / index_.k_blocks()]; }
  uint32_t first_column(uint32_t block) const { return block % index_.k_blocks() * index_.k_block; }
  Rows rows_of(const RowCuts& cuts, uint32_t block) const {
    const uint32_t k_block = block % index_.k_blocks();
    return {cuts.begin(k_block) + first_row(block), cuts.begin(k_block + 1) + first_row(block)};
  }

  /// Bundle by bundle, so that what is written stays in the L1 cache: fills words, and calls clear for
  /// the bundle's places, fetch for the rows of the next one, and write for each slice.
  template <class Clear, class Fetch, class Write>
  void write_slices(uint32_t block, const Clear& clear, const Fetch& fetch, const Write& write) const {
    const uint32_t none = index_.rows_of(block / index_.k_blocks());
    const auto enter = [&](const ElementBlock& at, const ElementBundle* coming) {
      const ElementBundle& bundle = index_.bundles[at.bundle];
      std::fill_n(&index_.words[at.index], bundle.index_count(),
                  pack_columns(index_.k_block, index_.k_block));
      clear(at.value, bundle.value_count());
      if (coming == nullptr) return;
      for (const uint16_t* of_side : {coming->row_a, coming->row_b})
        for (uint32_t lane = 0; lane < kBundleLanes; ++lane)
          if (of_side[lane] != none) fetch(of_side[lane]);
    };
    for_each_slice(index_, block, enter, write);
  }

  const uint32_t* columns_;
  const RowCuts& cuts_;
  ElementIndex& index_;
};

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
  index.bundles.resize(std::min(bundles * index.k_blocks(), places / kBundleRows));
  index.words.resize(places / 2);
}

void pack_by_length(const Pattern& pattern, const RowCuts& cuts, ElementIndex& index,
                    const base::ParallelFor& parallel, const FormerPattern* former,
                    std::vector<uint32_t>* moves) {
  std::vector<std::vector<ElementBundle>> bundles(index.blocks.size() - 1);
  const auto blocks = static_cast<uint32_t>(bundles.size());
  parallel(blocks, [&](uint32_t block) {
    const uint32_t chunk = block / index.k_blocks();
    const uint32_t* begin = cuts.begin(block % index.k_blocks()) + index.chunk_begin[chunk];
    const uint32_t* end = cuts.begin(block % index.k_blocks() + 1) + index.chunk_begin[chunk];
    std::array<uint16_t, kMaxChunkRows> lengths;
    const uint32_t rows = index.rows_of(chunk);
    for (uint32_t row = 0; row < rows; ++row) lengths[row] = static_cast<uint16_t>(end[row] - begin[row]);
    bundles[block] = bundle_by_length({lengths.data(), rows});
  });
  place_bundles(bundles, index, parallel);
  const BlockWriter writer(pattern, cuts, index);
  if (former == nullptr) {
    parallel(blocks, [&](uint32_t block) { writer.write(block); });
    return;
  }
  parallel(blocks, [&](uint32_t block) { writer.write(block, *former, *moves); });
  std::fill(moves->begin() + static_cast<int64_t>(index.value_count()), moves->end(), former->none);
}

void pack_transposed(const ElementIndex& from, uint32_t none, ElementIndex& index,
                     std::vector<uint32_t>& source, const base::ParallelFor& parallel) {
  TransposedPacking(from, index, parallel).run(none, source);
}

}  // namespace tessera::sparse
