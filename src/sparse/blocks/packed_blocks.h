// A prepacked block-sparse weight, in the order in which the block kernels read it: the master copy.
#pragma once

#include <tessera/sparse.h>
#include <tessera/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/parallel.h"
#include "sparse/blocks/block_index.h"
#include "sparse/blocks/block_order.h"

namespace tessera::sparse {

struct RowEdits;

/// Whether block kernels exist for this block size: 4, 8, 16 or 32.
bool is_kernel_block_size(uint32_t block_size);

/// Block size of the pattern of a dense weight.
inline constexpr uint32_t kDenseBlockSize = 8;

/// The pattern in which every block of an m × k matrix is stored: a dense matrix.
Pattern full_pattern(uint32_t rows, uint32_t cols, uint32_t block_size);

/// The order of the blocks' slots.
enum class SlotOrder : uint8_t {
  in_turn,  ///< the order of the BSR pattern
  rotated,  ///< for a full pattern: the slots of each block row in order, starting with the block column that
            ///< has the row's number
  dynamic,  ///< any: a block keeps its slot
};

/// A sparse weight: one array of values, the master copy, with its index on top. A block's values are in its
/// *slot*, in the order given by BlockOrder. Blocks of a static weight have slots in the order of the BSR
/// pattern; blocks of a full pattern are rotated per row. A dynamic weight has as many slots as its capacity;
/// a block keeps its slot for as long as it exists, and the values of free slots are zero. The overhang is
/// stored as zeros and ignored.
class PackedBlocks {
 public:
  /// Sets the pattern; all values are zero. `type` is f32, f16 or bf16. Throws UsageError for another type, a
  /// block size without kernels, and a malformed pattern.
  PackedBlocks(const Pattern& pattern, Type type);

  /// Sets the pattern, with slots in BSR order, or rotated for a full pattern; all values are zero. Throws as
  /// above.
  PackedBlocks(const Pattern& pattern, Type type, SlotOrder order);

  /// A dynamic weight with all values zero. Also throws UsageError if the pattern has more blocks than
  /// `capacity`, or if that exceeds 2^32 - 1.
  PackedBlocks(const Pattern& pattern, Type type, uint64_t capacity);

  /// A weight whose values the caller keeps. Slots are always in the order of the pattern, free slots last;
  /// with a capacity, arrange() changes the pattern.
  static PackedBlocks without_values(const Pattern& pattern, Type type, std::optional<uint64_t> capacity);

  /// Sets the pattern and the values, rounded to `type`. Throws as above.
  PackedBlocks(const SparseMatrix& matrix, Type type);

  Type type() const { return type_; }
  uint32_t rows() const { return rows_; }
  uint32_t cols() const { return cols_; }
  uint32_t block_size() const { return order_.block_size; }
  uint32_t block_rows() const { return index_.rows(); }
  uint32_t block_cols() const { return (cols_ + block_size() - 1) / block_size(); }
  uint64_t blocks() const { return index_.blocks(); }
  /// Maximum number of blocks; for a static weight, its blocks.
  uint64_t capacity() const { return capacity_; }
  /// Whether the pattern may change.
  bool is_dynamic() const { return slot_order_ == SlotOrder::dynamic; }
  bool has_values() const { return values_ != nullptr; }
  SlotOrder slot_order() const { return slot_order_; }
  const BlockOrder& order() const { return order_; }

  /// Stored values inside the matrix, excluding the overhang.
  uint64_t non_zeros() const;

  /// Values of `type()`, capacity() × order().block_values(), aligned to a cache line.
  std::span<const std::byte> values() const { return {values_.get(), value_bytes()}; }
  std::span<std::byte> values() { return {values_.get(), value_bytes()}; }

  /// Slots without a block, in no order.
  std::span<const uint32_t> free_slots() const { return free_slots_; }

  /// The blocks by block row.
  const BlockIndex& index() const { return index_; }

  /// The blocks by block column, with their slots: the index of the transposed weight, over the same values.
  /// Built on first use; thread-safe.
  const BlockIndex& transposed_index() const;

  /// Bytes of values and index, including the transposed index once it is built.
  uint64_t bytes() const;

  /// The pattern; index() has the positions of its blocks in values().
  Pattern pattern() const;

  /// Replaces all values, given in the order of SparseMatrix. One pass.
  void set_values(std::span<const float> values, const base::ParallelFor& parallel = base::serial_for);

  /// The values in the order of SparseMatrix, with zeros in the overhang. One pass.
  void get_values(std::span<float> values) const;

  /// Convert any arrays, such as gradients, between the order of SparseMatrix and the order of values(), with
  /// 0 where there is no stored value. Throw UsageError if a size is wrong.
  void pack(std::span<const float> values, std::span<float> packed) const;
  void unpack(std::span<const float> packed, std::span<float> values) const;

  /// The following are for dynamic weights that are not being read.

  /// Sets another matrix of the same shape and block size; its blocks get slots in order. Throws UsageError,
  /// and changes nothing, if it is malformed or exceeds the capacity.
  void set_matrix(const SparseMatrix& matrix, const base::ParallelFor& parallel = base::serial_for);

  /// Sets another pattern of the same shape and block size. Blocks in both patterns keep slot and values; the
  /// values of new blocks are zero. Returns the freed slots, where other per-value state must be cleared.
  /// Throws as set_matrix().
  std::vector<uint32_t> set_pattern(const Pattern& pattern,
                                    const base::ParallelFor& parallel = base::serial_for);

  /// Changes the pattern by dropped and grown blocks, in any order. A block in both lists is reset to zero.
  /// Returns the freed slots. Throws UsageError, and changes nothing, if a dropped block is missing, a grown
  /// block exists, a block is listed twice or lies outside, or the capacity does not suffice.
  std::vector<uint32_t> replace(std::span<const BlockPosition> drop, std::span<const BlockPosition> grow,
                                const base::ParallelFor& parallel = base::serial_for);

  /// For a weight without values: sets another pattern of the same shape and block size. Returns the former
  /// slot of each block, kNoSlot for new blocks. Throws as set_matrix().
  static constexpr uint32_t kNoSlot = UINT32_MAX;
  std::vector<uint32_t> arrange(const Pattern& pattern, const base::ParallelFor& parallel = base::serial_for);

 private:
  struct Transposed;
  struct Changes;
  struct Free {
    void operator()(Transposed* transposed) const;
    void operator()(Changes* changes) const;
  };

  PackedBlocks(const Pattern& pattern, Type type, uint64_t capacity, SlotOrder order, bool has_values = true);

  size_t block_bytes() const { return order_.block_values() * size_of(type_); }
  size_t value_bytes() const { return has_values() ? capacity_ * block_bytes() : 0; }
  void check_count(const char* what, size_t have, uint64_t blocks) const;
  void check_capacity(uint64_t blocks) const;
  void check_successor(const Pattern& pattern) const;
  void number_slots();
  void clear_slots(std::span<const uint32_t> slots);
  void edit_transposed(std::span<const RowEdits> edits, uint64_t grown, const base::ParallelFor& parallel);
  template <class Visit>
  void for_each_block(uint32_t row_begin, uint32_t row_end, Visit&& visit) const;
  template <class T>
  void pack_rows(uint32_t row_begin, uint32_t row_end, const float* values, T* packed) const;
  template <class T>
  void unpack_all(const T* packed, float* values) const;

  Type type_;
  uint32_t rows_ = 0;
  uint32_t cols_ = 0;
  uint64_t capacity_ = 0;
  SlotOrder slot_order_ = SlotOrder::in_turn;
  BlockOrder order_;
  BlockIndex index_;
  std::vector<uint32_t> free_slots_;  ///< the next slot to use is last
  std::unique_ptr<Transposed, Free> transposed_;
  std::unique_ptr<Changes, Free> changes_;  ///< for dynamic weights
  base::Buffer values_;
};

}  // namespace tessera::sparse
