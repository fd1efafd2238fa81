// Weights with changing patterns: blocks keep the slots of their values.
#include <cstring>
#include <numeric>
#include <utility>

#include "sparse/blocks/block_edits.h"
#include "sparse/blocks/packed_blocks_inside.h"
#include "sparse/moves.h"
#include "sparse/pattern.h"

namespace tessera::sparse {
namespace {

constexpr uint32_t kNoSlot = PackedBlocks::kNoSlot;

// Number of blocks of the transposed index that can be rebuilt in the time of one edit.
constexpr uint64_t kBlocksBuiltInAnEdit = 16;

// Approximate bytes touched per block by matching and moving, and per edit.
constexpr uint64_t kMatchBytes = 32;
constexpr uint64_t kMoveBytes = 8;
constexpr uint64_t kEditBytes = 16;

/// Slots freed by one part of the rows, and their new owners.
class LostSlots {
 public:
  LostSlots() = default;
  explicit LostSlots(uint32_t* room) : slots_(room) {}

  /// Kept only if it is a slot, but always written: a branch on it would be mispredicted.
  void add(uint32_t slot) {
    slots_[lost_] = slot;
    lost_ += slot != kNoSlot ? 1 : 0;
  }
  /// A slot for a grown block. If none is left the block waits for one.
  uint32_t take(uint32_t block) {
    if (taken_ < lost_) return slots_[taken_++];
    waiting_.push_back(block);
    return kNoSlot;
  }

  size_t count() const { return lost_; }
  std::span<const uint32_t> all() const { return {slots_, lost_}; }
  std::span<const uint32_t> left() const { return {slots_ + taken_, slots_ + lost_}; }
  std::span<const uint32_t> waiting() const { return waiting_; }

 private:
  uint32_t* slots_ = nullptr;
  size_t lost_ = 0, taken_ = 0;
  std::vector<uint32_t> waiting_;
};

/// Calls give(part, block, slot) for each waiting block. Slots left over in one part go to the others, and
/// then to the free slots, which are used last. Returns all freed slots.
template <class Give>
std::vector<uint32_t> settle(std::span<const LostSlots> parts, std::vector<uint32_t>& free,
                             const Give& give) {
  size_t count = 0;
  for (const LostSlots& part : parts) count += part.count();
  std::vector<uint32_t> all, left;
  all.reserve(count);
  for (const LostSlots& part : parts) {
    all.insert(all.end(), part.all().begin(), part.all().end());
    left.insert(left.end(), part.left().begin(), part.left().end());
  }
  free.insert(free.end(), left.rbegin(), left.rend());
  for (uint32_t part = 0; part < parts.size(); ++part)
    for (const uint32_t block : parts[part].waiting()) {
      give(part, block, free.back());
      free.pop_back();
    }
  return all;
}

/// Matches rows of a new pattern with those of the present one.
template <class Column>
class RowMatcher {
 public:
  /// Writes the slots of new blocks to `slots`.
  RowMatcher(const BlockIndex& index, const Column* columns, uint32_t block_cols, uint32_t* slots)
      : index_(index), columns_(columns), slot_at_(block_cols, kNoSlot), grown_(block_cols), slots_(slots) {}

  /// Grown blocks take slots freed by this and earlier rows.
  void match(const Pattern& pattern, uint32_t row, LostSlots& lost) {
    const uint32_t begin = index_.row_begin[row], end = index_.row_begin[row + 1];
    for (uint32_t i = begin; i < end; ++i) slot_at_[columns_[i]] = index_.slots[i];
    uint32_t grown = 0;
    for (uint64_t i = pattern.crow_indices[row]; i < pattern.crow_indices[row + 1]; ++i) {
      slots_[i] = std::exchange(slot_at_[pattern.col_indices[i]], kNoSlot);
      grown_[grown] = static_cast<uint32_t>(i);  // always written, as in LostSlots::add
      grown += slots_[i] == kNoSlot ? 1 : 0;
    }
    for (uint32_t i = begin; i < end; ++i) lost.add(std::exchange(slot_at_[columns_[i]], kNoSlot));
    for (uint32_t g = 0; g < grown; ++g) slots_[grown_[g]] = lost.take(grown_[g]);
  }

 private:
  const BlockIndex& index_;
  const Column* columns_;
  std::vector<uint32_t> slot_at_;  ///< per column; kNoSlot between rows
  std::vector<uint32_t> grown_;
  uint32_t* slots_;
};

/// Rejects edits that list a block twice, drop a missing one, or grow an existing one.
void check_edits(const BlockIndex& index, std::span<const BlockEdit> edits) {
  for (size_t i = 0; i < edits.size(); ++i) {
    const BlockEdit& e = edits[i];
    const bool same = i > 0 && edits[i - 1].row == e.row && edits[i - 1].col == e.col;
    if (same && edits[i - 1].grows == e.grows)
      malformed("block ({}, {}) cannot be {}: it is listed twice", uint32_t{e.row}, e.col,
                e.grows ? "grown" : "dropped");
    const bool is_there = e.at < index.row_begin[e.row + 1] && index.column(e.at) == e.col;
    if (!e.grows && !is_there)
      malformed("block ({}, {}) cannot be dropped: it does not exist", uint32_t{e.row}, e.col);
    if (e.grows && is_there && !same)
      malformed("block ({}, {}) cannot be grown: it exists already", uint32_t{e.row}, e.col);
  }
}

void check_positions(std::span<const BlockPosition> positions, const char* what, uint32_t block_rows,
                     uint32_t block_cols) {
  for (const BlockPosition& p : positions)
    if (p.row >= block_rows || p.col >= block_cols)
      malformed("block ({}, {}) to {}; there are {} × {} blocks", p.row, p.col, what, block_rows, block_cols);
}

/// The edits of some rows, located and checked, with slots.
RowEdits find_edits(const BlockIndex& index, const Exchange& exchange, uint32_t begin, uint32_t end,
                    LostSlots& lost) {
  RowEdits rows = edits_of_rows(exchange, begin, end);
  locate(index, rows.edits);
  check_edits(index, rows.edits);
  for (BlockEdit& e : rows.edits)
    if (!e.grows) lost.add(e.slot = index.slots[e.at]);
  for (uint32_t i = 0; i < rows.edits.size(); ++i)
    if (rows.edits[i].grows) rows.edits[i].slot = lost.take(i);
  return rows;
}

/// Sets the bytes of a block to 0. The smallest blocks are too many for a call each.
void clear_block(std::byte* values, size_t bytes) {
  if (bytes == 64)
    std::memset(values, 0, 64);
  else
    std::memset(values, 0, bytes);
}

}  // namespace

void PackedBlocks::check_capacity(uint64_t blocks) const {
  if (blocks > capacity_)
    malformed("{} blocks, {} more than its capacity of {}; give it more, or drop blocks first", blocks,
              blocks - capacity_, capacity_);
}

void PackedBlocks::check_successor(const Pattern& pattern) const {
  if (!is_dynamic()) malformed("its pattern is fixed; make it a dynamic one");
  if (pattern.rows != rows_ || pattern.cols != cols_ || pattern.block_size != block_size())
    malformed("a pattern of {} × {} in blocks of {}, for a weight of {} × {} in blocks of {}", pattern.rows,
              pattern.cols, pattern.block_size, rows_, cols_, block_size());
  validate(pattern);
  check_capacity(pattern.blocks());
}

void PackedBlocks::number_slots() {
  std::iota(index_.slots.begin(), index_.slots.end(), 0U);
  free_slots_.resize(capacity_ - blocks());
  std::iota(free_slots_.rbegin(), free_slots_.rend(), static_cast<uint32_t>(blocks()));
}

void PackedBlocks::clear_slots(std::span<const uint32_t> slots) {
  for (const uint32_t slot : slots) clear_block(values_.get() + slot * block_bytes(), block_bytes());
}

void PackedBlocks::set_matrix(const SparseMatrix& matrix, const base::ParallelFor& parallel) {
  check_successor(matrix.pattern);
  check_count("an array", matrix.values.size(), matrix.pattern.blocks());
  for_each_part(static_cast<uint32_t>(blocks()), parts_for(blocks() * sizeof(uint32_t)), parallel,
                [&](uint32_t, uint32_t begin, uint32_t end) {
                  for (uint32_t i = begin; i < end; ++i)
                    if (index_.slots[i] >= matrix.pattern.blocks()) clear_slots({&index_.slots[i], 1});
                });
  set_positions(index_, matrix.pattern, parallel);
  number_slots();
  transposed_->is_current = false;
  set_values(matrix.values, parallel);
}

std::vector<uint32_t> PackedBlocks::set_pattern(const Pattern& pattern, const base::ParallelFor& parallel) {
  check_successor(pattern);
  std::vector<uint32_t>& slots = changes_->spare.slots;
  slots.resize(std::max<size_t>(slots.size(), capacity_));
  std::vector<LostSlots> lost(parts_for(pattern.blocks() * (kMatchBytes + block_bytes())));
  with_columns(index_, [&](const auto* columns) {
    for_each_part(block_rows(), static_cast<uint32_t>(lost.size()), parallel,
                  [&](uint32_t part, uint32_t begin, uint32_t end) {
                    RowMatcher matcher(index_, columns, block_cols(), slots.data());
                    LostSlots of_part(changes_->lost_room(index_.row_begin[begin]));
                    for (uint32_t r = begin; r < end; ++r) {
                      const size_t before = of_part.count();
                      matcher.match(pattern, r, of_part);
                      clear_slots(of_part.all().subspan(before));
                    }
                    lost[part] = std::move(of_part);
                  });
  });
  std::vector<uint32_t> dropped =
      settle(lost, free_slots_, [&](uint32_t, uint32_t block, uint32_t slot) { slots[block] = slot; });
  set_positions(index_, pattern, parallel);
  copy_bytes(slots.data(), index_.slots.data(), pattern.blocks() * sizeof(uint32_t), parallel);
  transposed_->is_current = false;
  return dropped;
}

std::vector<uint32_t> PackedBlocks::arrange(const Pattern& pattern, const base::ParallelFor& parallel) {
  check_successor(pattern);
  std::vector<uint32_t> former(pattern.blocks(), kNoSlot);
  with_columns(index_, [&](const auto* columns) {
    for_each_part(block_rows(), parts_for(pattern.blocks() * kMatchBytes), parallel,
                  [&](uint32_t, uint32_t begin, uint32_t end) {
                    for (uint32_t row = begin; row < end; ++row) {
                      uint32_t old = index_.row_begin[row];
                      for (uint64_t i = pattern.crow_indices[row]; i < pattern.crow_indices[row + 1]; ++i) {
                        while (old < index_.row_begin[row + 1] && columns[old] < pattern.col_indices[i])
                          ++old;
                        if (old < index_.row_begin[row + 1] && columns[old] == pattern.col_indices[i])
                          former[i] = old;
                      }
                    }
                  });
  });
  set_positions(index_, pattern, parallel);
  number_slots();
  transposed_->is_current = false;
  return former;
}

std::vector<uint32_t> PackedBlocks::replace(std::span<const BlockPosition> drop,
                                            std::span<const BlockPosition> grow,
                                            const base::ParallelFor& parallel) {
  if (!is_dynamic()) malformed("its pattern is fixed; make it a dynamic one");
  check_positions(drop, "drop", block_rows(), block_cols());
  check_positions(grow, "grow", block_rows(), block_cols());
  const Exchange exchange{drop, grow};
  const uint32_t parts = parts_for(exchange.size() * kEditBytes + blocks() * kMoveBytes);
  std::vector<LostSlots> lost(parts);
  std::vector<RowEdits> edits(parts);
  Splice splice(index_, changes_->spare, parts, grow.size());
  for_each_part(block_rows(), parts, parallel, [&](uint32_t part, uint32_t begin, uint32_t end) {
    lost[part] = LostSlots(changes_->lost_room(index_.row_begin[begin]));
    edits[part] = find_edits(index_, exchange, begin, end, lost[part]);
    splice.prepare(part, edits[part]);
  });
  check_capacity(blocks() - drop.size() + grow.size());
  const bool are_few = exchange.size() < blocks() / kBlocksBuiltInAnEdit;
  std::vector<uint32_t> dropped = settle(lost, free_slots_, [&](uint32_t part, uint32_t i, uint32_t slot) {
    edits[part].edits[i].slot = slot;
    splice.set_slot(part, edits[part].edits[i]);
  });
  parallel(parts, [&](uint32_t part) {
    splice.finish(part);
    clear_slots(lost[part].all());
  });
  transposed_->is_current = transposed_->is_current && are_few;
  if (transposed_->is_current) edit_transposed(edits, grow.size(), parallel);
  return dropped;
}

void PackedBlocks::edit_transposed(std::span<const RowEdits> edits, uint64_t grown,
                                   const base::ParallelFor& parallel) {
  const auto parts = static_cast<uint32_t>(edits.size());
  Splice splice(transposed_->index, changes_->spare, parts, grown);
  for_each_part(block_cols(), parts, parallel, [&](uint32_t part, uint32_t begin, uint32_t end) {
    RowEdits columns = edits_of_rows(edits, begin, end);
    locate(transposed_->index, columns.edits);
    splice.prepare(part, columns);
  });
  parallel(parts, [&](uint32_t part) { splice.finish(part); });
}

}  // namespace tessera::sparse
