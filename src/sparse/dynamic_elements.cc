// Matrices of single elements whose pattern changes: packed anew, the values following.
#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cstring>

#include "sparse/block_edits.h"
#include "sparse/moves.h"
#include "sparse/packed_elements_inside.h"

namespace tessera::sparse {
namespace {

/// Places that index arrays and gathers can number.
constexpr uint64_t kMostPlaces = uint64_t{1} << 31;

[[noreturn]] void refuse(const BlockEdit& edit, std::string_view why) {
  throw UsageError(
      fmt::format("element ({}, {}) is to {}{}", uint32_t{edit.row}, edit.col, edit.grows ? "grow" : "go", why));
}

bool same_position(const BlockEdit& a, const BlockEdit& b) { return a.row == b.row && a.col == b.col; }

/// All of them, by row, column, and drops before grows. Throws UsageError for one outside the pattern
/// and for repetitions.
std::vector<BlockEdit> sorted_edits(const Pattern& pattern, std::span<const BlockPosition> drop,
                                    std::span<const BlockPosition> grow) {
  for (const auto& positions : {drop, grow})
    for (const BlockPosition& p : positions)
      if (p.row >= pattern.rows || p.col >= pattern.cols)
        refuse({p.row, positions.data() == grow.data(), p.col}, fmt::format(", in a matrix of {} x {}", pattern.rows, pattern.cols));
  std::vector<BlockEdit> edits = edits_of_rows(Exchange{drop, grow}, 0, pattern.rows).edits;
  for (size_t i = 1; i < edits.size(); ++i)
    if (same_position(edits[i - 1], edits[i]) && edits[i - 1].grows == edits[i].grows)
      refuse(edits[i], " twice");
  return edits;
}

/// The pattern after sorted edits: stretches of the old one between what they bring.
Pattern edited(const Pattern& old, const std::vector<BlockEdit>& edits) {
  Pattern pattern{old.rows, old.cols, 1, {0}, {}};
  pattern.row_begin.reserve(old.row_begin.size());
  pattern.columns.reserve(old.columns.size() + edits.size());
  auto edit = edits.begin();
  for (uint32_t row = 0; row < old.rows; ++row) {
    auto at = old.columns.begin() + static_cast<ptrdiff_t>(old.row_begin[row]);
    const auto end = old.columns.begin() + static_cast<ptrdiff_t>(old.row_begin[row + 1]);
    for (; edit != edits.end() && edit->row == row; ++edit) {
      const auto to = std::lower_bound(at, end, edit->col);
      pattern.columns.insert(pattern.columns.end(), at, to);
      at = to;
      const bool is_there = at != end && *at == edit->col;
      if (edit->grows == is_there) refuse(*edit, is_there ? ", and is there already" : ", and is not there");
      if (edit->grows)
        pattern.columns.push_back(edit->col);
      else
        ++at;
    }
    pattern.columns.insert(pattern.columns.end(), at, end);
    pattern.row_begin.push_back(pattern.columns.size());
  }
  return pattern;
}

}  // namespace

PackedElements PackedElements::dynamic(uint32_t rows, uint32_t cols, uint64_t capacity, Type type,
                                       const ElementPacking& packing) {
  PackedElements w(cut_for_shape(rows, cols, capacity, packing), type, packing);
  const uint64_t places = most_places(w.index_, capacity);
  w.check_places(places);
  w.dynamic_ = std::make_unique<Dynamic>();
  w.dynamic_->capacity = capacity;
  w.dynamic_->pattern = {rows, cols, 1, w.row_begin_, {}};
  w.dynamic_->spare = w.index_;
  reserve(w.index_, capacity);
  w.values_.resize((places + kBundleLanes) * size_of(type));
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
  if (pattern.blocks() > dynamic_->capacity)
    throw UsageError(
        fmt::format("{} non-zeros, {} more than its capacity of {}; give it more, or drop some first",
                    pattern.blocks(), pattern.blocks() - dynamic_->capacity, dynamic_->capacity));
}

void PackedElements::replace_index(const Pattern& pattern, const base::ParallelFor& parallel) {
  Dynamic& d = *dynamic_;
  index_.blocks = d.spare.blocks;
  copy_bytes(d.spare.bundles.data(), index_.bundles.data(),
             index_.blocks.back().bundle * sizeof(ElementBundle), parallel);
  copy_bytes(d.spare.words.data(), index_.words.data(), index_.blocks.back().index * sizeof(uint32_t),
             parallel);
  row_begin_ = pattern.row_begin;
  d.pattern.row_begin = pattern.row_begin;
  d.pattern.columns.resize(pattern.blocks());
  copy_bytes(pattern.columns.data(), d.pattern.columns.data(), pattern.blocks() * sizeof(uint32_t), parallel);
  transposed_->is_current = false;
}

void PackedElements::set_matrix(const SparseMatrix& matrix, const base::ParallelFor& parallel) {
  check(matrix.pattern);
  if (matrix.values.size() != matrix.pattern.blocks())
    throw UsageError(
        fmt::format("{} values for {} non-zeros", matrix.values.size(), matrix.pattern.blocks()));
  const uint64_t before = value_count();
  pack_by_length(matrix.pattern, RowCuts(matrix.pattern, k_block(), parallel), dynamic_->spare, parallel);
  replace_index(matrix.pattern, parallel);
  std::memset(values_.data(), 0, std::max(before, value_count()) * size_of(type_));
  set_values(matrix.values.data(), parallel);
}

std::shared_ptr<const std::vector<uint32_t>> PackedElements::set_pattern(const Pattern& pattern,
                                                                         const base::ParallelFor& parallel) {
  check(pattern);
  Dynamic& d = *dynamic_;
  const RowCuts cuts(pattern, k_block(), parallel);
  if (d.moves.use_count() != 1) d.moves = std::make_shared<std::vector<uint32_t>>(places());
  const FormerPattern former{index_, static_cast<uint32_t>(zero_place())};
  pack_by_length(pattern, cuts, d.spare, parallel, &former, d.moves.get());

  d.former_values.resize(values_.size());
  copy_bytes(values_.data(), d.former_values.data(), value_count() * size_of(type_), parallel);
  const uint64_t changed = std::max(value_count(), d.spare.value_count());
  take({d.moves->data(), changed}, type_, d.former_values.data(), values_.data(), parallel);
  replace_index(pattern, parallel);
  return d.moves;
}

std::shared_ptr<const std::vector<uint32_t>> PackedElements::replace(std::span<const BlockPosition> drop,
                                                                     std::span<const BlockPosition> grow,
                                                                     const base::ParallelFor& parallel) {
  check_dynamic();
  const std::vector<BlockEdit> edits = sorted_edits(dynamic_->pattern, drop, grow);
  const auto moves = set_pattern(edited(dynamic_->pattern, edits), parallel);
  for (size_t i = 1; i < edits.size(); ++i)
    if (same_position(edits[i - 1], edits[i])) restart(edits[i].row, edits[i].col);
  return moves;
}

void PackedElements::restart(uint32_t row, uint32_t col) {
  const auto next_chunk = std::upper_bound(index_.chunk_begin.begin(), index_.chunk_begin.end(), row);
  const auto chunk = static_cast<uint32_t>(next_chunk - index_.chunk_begin.begin()) - 1;
  for_each_slice(index_, uint64_t{chunk} * k_blocks() + col / k_block(),
                 [&](uint16_t row_of_chunk, const ElementSlice& s) {
                   if (index_.chunk_begin[chunk] + row_of_chunk != row) return;
                   for_each_element(index_, s, [&](uint32_t column, uint64_t place) {
                     if (column != col % k_block()) return;
                     (*dynamic_->moves)[place] = static_cast<uint32_t>(zero_place());
                     std::memset(values() + place * size_of(type_), 0, size_of(type_));
                   });
                 });
}

}  // namespace tessera::sparse
