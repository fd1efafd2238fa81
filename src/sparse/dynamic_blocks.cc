// Weights whose pattern changes: blocks keep the slots that their values are in.
#include <cstring>
#include <numeric>

#include "sparse/block_edits.h"
#include "sparse/packed_blocks_inside.h"
#include "sparse/pattern.h"

namespace tessera::sparse {
namespace {

constexpr uint32_t kNoSlot = UINT32_MAX;

// In the time that one edit of the transposed index takes, so many of its blocks are built anew.
constexpr uint64_t kBlocksBuiltInAnEdit = 16;

/// What one part of the rows finds: slots that lose their block, and where blocks need one.
struct Changes {
  std::vector<uint32_t> dropped;
  std::vector<uint64_t> grown;
};

/// Finds the slots of the blocks of `pattern` in some rows. `slot_at` has an entry for each column,
/// kNoSlot, and is left so.
template <class Column>
void match_rows(const BlockIndex& old, const Column* old_columns, const Pattern& pattern, uint32_t row_begin,
                uint32_t row_end, uint32_t* slot_at, uint32_t* slots, Changes& changes) {
  for (uint32_t r = row_begin; r < row_end; ++r) {
    const uint32_t begin = old.row_begin[r];
    const uint32_t end = old.row_begin[r + 1];
    for (uint32_t i = begin; i < end; ++i) slot_at[old_columns[i]] = old.slots[i];
    for (uint64_t i = pattern.row_begin[r]; i < pattern.row_begin[r + 1]; ++i) {
      slots[i] = std::exchange(slot_at[pattern.columns[i]], kNoSlot);
      if (slots[i] == kNoSlot) changes.grown.push_back(i);
    }
    for (uint32_t i = begin; i < end; ++i) {
      const uint32_t slot = std::exchange(slot_at[old_columns[i]], kNoSlot);
      if (slot != kNoSlot) changes.dropped.push_back(slot);
    }
  }
}

/// Free slots, those that have just lost their block first: they lie where their rows' others do.
class SlotSupply {
 public:
  SlotSupply(std::span<const uint32_t> dropped, std::vector<uint32_t>& free)
      : dropped_(dropped), free_(free) {}

  uint32_t next() {
    if (taken_ < dropped_.size()) return dropped_[taken_++];
    const uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void give_back() {
    free_.insert(free_.end(), dropped_.rbegin(), dropped_.rend() - static_cast<ptrdiff_t>(taken_));
  }

 private:
  std::span<const uint32_t> dropped_;
  std::vector<uint32_t>& free_;
  size_t taken_ = 0;
};

/// Refuses edits that name a block twice, drop one that is not there, or grow one that stays.
void check_edits(const BlockIndex& index, const std::vector<BlockEdit>& edits) {
  for (size_t i = 0; i < edits.size(); ++i) {
    const BlockEdit& e = edits[i];
    const bool same = i > 0 && edits[i - 1].row == e.row && edits[i - 1].col == e.col;
    if (same && edits[i - 1].grows == e.grows)
      malformed("block ({}, {}) is to {} twice", e.row, e.col, e.grows ? "grow" : "go");
    const bool is_there = e.at < index.row_begin[e.row + 1] && index.column(e.at) == e.col;
    if (!e.grows && !is_there) malformed("block ({}, {}) is to go, and is not there", e.row, e.col);
    if (e.grows && is_there && !same)
      malformed("block ({}, {}) is to grow, and is there already", e.row, e.col);
  }
}

}  // namespace

void PackedBlocks::check_capacity(uint64_t blocks) const {
  if (blocks > capacity_)
    malformed("{} blocks, {} more than its capacity of {}; give it more, or drop blocks first", blocks,
              blocks - capacity_, capacity_);
}

void PackedBlocks::check_successor(const Pattern& pattern) const {
  if (!is_dynamic_) malformed("its pattern is fixed; make it a dynamic one");
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

void PackedBlocks::clear_slots(std::span<const uint32_t> slots, const base::ParallelFor& parallel) {
  const size_t bytes = order_.block_values() * size_of(type_);
  for_each_part(static_cast<uint32_t>(slots.size()), parts_for(slots.size() * bytes), parallel,
                [&](uint32_t, uint32_t begin, uint32_t end) {
                  for (uint32_t i = begin; i < end; ++i)
                    std::memset(values_.get() + slots[i] * bytes, 0, bytes);
                });
}

void PackedBlocks::set_matrix(const SparseMatrix& matrix, const base::ParallelFor& parallel) {
  check_successor(matrix.pattern);
  check_count("an array", matrix.values.size(), matrix.pattern.blocks());
  std::vector<uint32_t> left;
  for (uint64_t i = 0; i < blocks(); ++i)
    if (index_.slots[i] >= matrix.pattern.blocks()) left.push_back(index_.slots[i]);
  set_positions(index_, matrix.pattern);
  number_slots();
  transposed_->is_current = false;
  clear_slots(left, parallel);
  set_values(matrix.values, parallel);
}

std::vector<uint32_t> PackedBlocks::set_pattern(const Pattern& pattern, const base::ParallelFor& parallel) {
  check_successor(pattern);
  constexpr uint64_t kBytesABlock = 32;  // that matching touches, roughly
  std::vector<uint32_t> slots(pattern.blocks());
  std::vector<Changes> changes(parts_for(pattern.blocks() * kBytesABlock));
  with_columns(index_, [&](const auto* columns) {
    for_each_part(block_rows(), static_cast<uint32_t>(changes.size()), parallel,
                  [&](uint32_t part, uint32_t begin, uint32_t end) {
                    std::vector<uint32_t> slot_at(block_cols(), kNoSlot);
                    match_rows(index_, columns, pattern, begin, end, slot_at.data(), slots.data(),
                               changes[part]);
                  });
  });
  std::vector<uint32_t> dropped;
  for (const Changes& c : changes) dropped.insert(dropped.end(), c.dropped.begin(), c.dropped.end());
  SlotSupply supply(dropped, free_slots_);
  for (const Changes& c : changes)
    for (const uint64_t block : c.grown) slots[block] = supply.next();
  supply.give_back();
  set_positions(index_, pattern);
  std::copy(slots.begin(), slots.end(), index_.slots.begin());
  transposed_->is_current = false;
  clear_slots(dropped, parallel);
  return dropped;
}

std::vector<uint32_t> PackedBlocks::replace(std::span<const BlockPosition> drop,
                                            std::span<const BlockPosition> grow) {
  if (!is_dynamic_) malformed("its pattern is fixed; make it a dynamic one");
  std::vector<BlockEdit> edits;
  edits.reserve(drop.size() + grow.size());
  for (const BlockPosition& p : drop) edits.push_back({p.row, p.col, false});
  for (const BlockPosition& p : grow) edits.push_back({p.row, p.col, true});
  for (const BlockEdit& e : edits)
    if (e.row >= block_rows() || e.col >= block_cols())
      malformed("block ({}, {}) to {}; there are {} × {} of them", e.row, e.col, e.grows ? "grow" : "drop",
                block_rows(), block_cols());
  sort(edits, block_rows());
  locate(index_, edits);
  check_edits(index_, edits);
  check_capacity(blocks() - drop.size() + grow.size());
  std::vector<uint32_t> dropped;
  dropped.reserve(drop.size());
  for (BlockEdit& e : edits)
    if (!e.grows) dropped.push_back(e.slot = index_.slots[e.at]);
  SlotSupply supply(dropped, free_slots_);
  for (BlockEdit& e : edits)
    if (e.grows) e.slot = supply.next();
  supply.give_back();
  const bool are_few = edits.size() < blocks() / kBlocksBuiltInAnEdit;
  splice(index_, edits);
  if (transposed_->is_current && are_few) {
    std::vector<BlockEdit> transposed = transpose(std::move(edits));
    sort(transposed, block_cols());
    locate(transposed_->index, transposed);
    splice(transposed_->index, transposed);
  } else {
    transposed_->is_current = false;
  }
  clear_slots(dropped, base::serial_for);
  return dropped;
}

}  // namespace tessera::sparse
