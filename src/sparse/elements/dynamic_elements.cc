// Single-element matrices with changing patterns: packed again, and the values follow.
#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <numeric>

#include "sparse/elements/element_edits.h"
#include "sparse/elements/packed_elements_inside.h"

namespace tessera::sparse {
namespace {

/// Maximum number of places for index arrays and gathers.
constexpr uint64_t kMostPlaces = uint64_t{1} << 31;

/// Calls repack with a value of an element's bit type.
template <class Repack>
void with_bits(Type type, const Repack& repack) {
  if (type == Type::f32)
    repack(uint32_t{});
  else
    repack(uint16_t{});
}

/// The blocks with edits.
std::vector<uint32_t> edited_blocks(const ElementEdits& edits, uint32_t blocks) {
  std::vector<uint32_t> edited;
  for (uint32_t block = 0; block < blocks; ++block)
    if (!edits.of(block).empty()) edited.push_back(block);
  return edited;
}

/// The first position of each row after a change.
std::vector<uint64_t> edited_rows(const std::vector<uint64_t>& row_begin, std::span<const BlockPosition> drop,
                                  std::span<const BlockPosition> grow) {
  std::vector<uint64_t> added(row_begin.size());  // modulo 2^64, one entry late
  for (const BlockPosition& p : drop) --added[p.row + 1];
  for (const BlockPosition& p : grow) ++added[p.row + 1];
  std::partial_sum(added.begin(), added.end(), added.begin());
  for (size_t row = 0; row < added.size(); ++row) added[row] += row_begin[row];
  return added;
}

}  // namespace

PackedElements PackedElements::dynamic(uint32_t rows, uint32_t cols, uint64_t capacity, Type type,
                                       const ElementPacking& packing) {
  PackedElements w = with_room(rows, cols, capacity, type, packing);
  w.allocate_values();
  return w;
}

PackedElements PackedElements::with_room(uint32_t rows, uint32_t cols, uint64_t capacity, Type type,
                                         const ElementPacking& packing) {
  PackedElements w(split_for_shape(rows, cols, capacity, packing), type);
  w.check_places(capacity);  // before sums with it overflow
  const uint64_t places = most_places(w.index_, capacity);
  w.check_places(places);
  w.dynamic_ = std::make_unique<Dynamic>();
  w.dynamic_->capacity = capacity;
  w.dynamic_->rows.resize(w.index_.blocks.size() - 1);
  reserve(w.index_, capacity);
  w.places_ = places + kRowGroupLanes;
  return w;
}

void PackedElements::check_places(uint64_t places) const {
  if (places < kMostPlaces) return;
  throw UsageError(
      fmt::format("single elements of {} x {} need {} places with their filler; there are numbers for "
                  "{}: use blocks, or a smaller capacity",
                  rows(), cols(), places, kMostPlaces));
}

void PackedElements::check_dynamic() const {
  if (!is_dynamic()) throw UsageError("a static weight: its pattern is fixed; make it a dynamic one");
}

void PackedElements::check(const Pattern& pattern) const {
  check_dynamic();
  if (pattern.rows != rows() || pattern.cols != cols() || pattern.block_size != 1)
    throw UsageError(
        fmt::format("a pattern of {} x {} in blocks of {} for a weight of {} x {} single elements",
                    pattern.rows, pattern.cols, pattern.block_size, rows(), cols()));
  check_capacity(pattern.blocks());
}

void PackedElements::check_capacity(uint64_t nonzeros) const {
  if (nonzeros <= dynamic_->capacity) return;
  throw UsageError(
      fmt::format("{} non-zeros, {} more than its capacity of {}; give it more, or drop some first", nonzeros,
                  nonzeros - dynamic_->capacity, dynamic_->capacity));
}

void PackedElements::set_matrix(const SparseMatrix& matrix, const base::ParallelFor& parallel) {
  check(matrix.pattern);
  if (matrix.values.size() != matrix.pattern.blocks())
    throw UsageError(
        fmt::format("{} values for {} non-zeros", matrix.values.size(), matrix.pattern.blocks()));
  take_pattern(matrix.pattern, false, parallel);
  with_bits(type_, [&]<class T>(T) { repack_all<T>(nullptr, parallel); });
  row_begin_ = matrix.pattern.crow_indices;
  transposed_->is_current = false;
  set_values(matrix.values.data(), parallel);
}

std::shared_ptr<const Moves> PackedElements::set_pattern(const Pattern& pattern,
                                                         const base::ParallelFor& parallel) {
  check(pattern);
  take_pattern(pattern, true, parallel);
  std::vector<uint32_t> all(dynamic_->rows.size());
  std::iota(all.begin(), all.end(), 0U);
  auto moves = repack(all, parallel);
  row_begin_ = pattern.crow_indices;
  return moves;
}

std::shared_ptr<const Moves> PackedElements::replace(std::span<const BlockPosition> drop,
                                                     std::span<const BlockPosition> grow,
                                                     const base::ParallelFor& parallel) {
  check_dynamic();
  const ElementEdits edits(index_, drop, grow, parallel);
  const std::vector<uint32_t> blocks = edited_blocks(edits, chunks() * k_blocks());
  parallel(static_cast<uint32_t>(blocks.size()), [&](uint32_t i) {
    dynamic_->rows[blocks[i]].take(index_, blocks[i], edits.of(blocks[i]),
                                   static_cast<uint32_t>(zero_place()));
  });
  std::vector<uint64_t> row_begin = edited_rows(row_begin_, drop, grow);
  check_capacity(row_begin.back());
  auto moves = repack(blocks, parallel);
  row_begin_ = std::move(row_begin);
  return moves;
}

/// Records the rows of all blocks of a pattern.
void PackedElements::take_pattern(const Pattern& pattern, bool keeps_values,
                                  const base::ParallelFor& parallel) {
  const RowSplits splits(pattern, k_block(), parallel);
  parallel(static_cast<uint32_t>(dynamic_->rows.size()), [&](uint32_t block) {
    dynamic_->rows[block].take(index_, block, pattern, splits, keeps_values,
                               static_cast<uint32_t>(zero_place()));
  });
}

/// Packs the recorded rows of some blocks.
std::shared_ptr<const Moves> PackedElements::repack(std::span<const uint32_t> blocks,
                                                    const base::ParallelFor& parallel) {
  Dynamic& d = *dynamic_;
  if (d.moves.use_count() != 1) d.moves = std::make_shared<Moves>();
  d.moves->none = static_cast<uint32_t>(zero_place());
  d.moves->former.resize(places());
  const bool stay = has_values() && std::all_of(blocks.begin(), blocks.end(), [&](uint32_t block) {
                      return fits(d.rows[block], index_, block);
                    });
  if (!stay) take_others(blocks, parallel);
  if (!has_values())
    repack_index(*d.moves, parallel);
  else
    with_bits(type_, [&]<class T>(T) {
      stay ? repack_in_place<T>(blocks, *d.moves, parallel) : repack_all<T>(d.moves.get(), parallel);
    });
  transposed_->is_current = false;
  return d.moves;
}

/// Records the rows of the unchanged blocks.
void PackedElements::take_others(std::span<const uint32_t> blocks, const base::ParallelFor& parallel) {
  std::vector<bool> changes(dynamic_->rows.size());
  for (const uint32_t block : blocks) changes[block] = true;
  parallel(static_cast<uint32_t>(changes.size()), [&](uint32_t block) {
    if (!changes[block]) dynamic_->rows[block].take(index_, block);
  });
}

template <class T>
void PackedElements::repack_in_place(std::span<const uint32_t> blocks, Moves& moves,
                                     const base::ParallelFor& parallel) {
  moves.ranges.clear();
  for (const uint32_t block : blocks)
    moves.ranges.push_back({index_.blocks[block].value, index_.blocks[block + 1].value});
  T* values = reinterpret_cast<T*>(values_.data());
  parallel(static_cast<uint32_t>(blocks.size()), [&](uint32_t i) {
    const auto [begin, end] = moves.ranges[i];
    std::vector<T> former(end - begin + 1);
    std::copy(values + begin, values + end, former.begin());
    write(dynamic_->rows[blocks[i]], blocks[i], moves.none, index_, MovingValues<T>{former, begin, values},
          moves.former.data());
  });
}

/// Packs the index of all blocks; the caller moves the values.
void PackedElements::repack_index(Moves& moves, const base::ParallelFor& parallel) {
  place(dynamic_->rows, index_.words.size() * 2, index_);
  parallel(static_cast<uint32_t>(dynamic_->rows.size()), [&](uint32_t block) {
    write(dynamic_->rows[block], block, moves.none, index_, NoValues{}, moves.former.data());
  });
  std::fill(moves.former.begin() + static_cast<ptrdiff_t>(value_count()), moves.former.end(), moves.none);
  moves.ranges = {{0, places()}};
}

/// Packs all blocks, none of which needs to stay in place.
template <class T>
void PackedElements::repack_all(Moves* moves, const base::ParallelFor& parallel) {
  const uint64_t used = value_count();
  const auto none = static_cast<uint32_t>(zero_place());
  const auto former = std::make_unique_for_overwrite<T[]>(used + 1);
  T* values = reinterpret_cast<T*>(values_.data());
  former[used] = T{};
  if (moves != nullptr) copy_bytes(values, former.get(), used * sizeof(T), parallel);
  place(dynamic_->rows, index_.words.size() * 2, index_);
  parallel(static_cast<uint32_t>(dynamic_->rows.size()), [&](uint32_t block) {
    write(dynamic_->rows[block], block, none, index_, MovingValues<T>{{former.get(), used + 1}, 0, values},
          moves == nullptr ? nullptr : moves->former.data());
  });
  if (used > value_count()) std::fill(values + value_count(), values + used, T{});
  if (moves == nullptr) return;
  std::fill(moves->former.begin() + static_cast<ptrdiff_t>(value_count()), moves->former.end(), none);
  moves->ranges = {{0, places()}};
}

}  // namespace tessera::sparse
