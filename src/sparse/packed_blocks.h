// A block-sparse weight in the order in which the block kernels read it: the master copy.
#pragma once

#include <tessera/sparse.h>
#include <tessera/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/buffer.h"
#include "sparse/block_index.h"

namespace tessera::sparse {

/// The order of the values inside a block: strips of `strip_rows` rows, in a strip groups of
/// `group` columns, in a group row after row. So value (r, c) of a block stands at `offset(r, c)`.
///
/// One stream then serves every n: at large n the kernels broadcast one value after the other; at
/// small n one vector load gets the values of several rows for a group of columns, to be multiplied
/// by the same group of X repeated. Groups of 2 are also what 16-bit matrix units want.
struct BlockOrder {
  uint32_t block_size = 8;
  uint32_t strip_rows = 8;
  uint32_t group = 2;

  uint32_t block_values() const { return block_size * block_size; }
  uint32_t strip_values() const { return block_size * strip_rows; }
  uint32_t offset(uint32_t r, uint32_t c) const {
    return r / strip_rows * strip_values() + c / group * (strip_rows * group) +
           r % strip_rows * group + c % group;
  }
};

/// Whether the block kernels have this block size: 4, 8, 16 or 32.
bool is_kernel_block_size(uint32_t block_size);

/// 8 rows and groups of 2 columns; 4 rows and groups of 4, which is row-major, for 4 × 4 blocks.
BlockOrder order_of(uint32_t block_size);

/// Block size of dense weights: the rows of a register tile, so that its values are one stream.
inline constexpr uint32_t kDenseBlockSize = 8;

/// The pattern in which every block of an m × k matrix is stored: a dense matrix.
Pattern full_pattern(uint32_t rows, uint32_t cols, uint32_t block_size);

/// A sparse weight: one array of values, the master copy, with its index on top. A block's values
/// stand in its *slot*, in the order that BlockOrder says. A static weight's blocks have the slots
/// in the order of the BSR pattern. What overhangs the matrix is stored as zeros and takes part in
/// nothing.
class PackedBlocks {
 public:
  /// Takes the pattern; all values are zero. `type` is f32, f16 or bf16. Throws UsageError for
  /// another type, for a block size that the kernels lack, and for a malformed pattern.
  PackedBlocks(const Pattern& pattern, Type type);

  /// Takes the values too, rounded to `type`.
  PackedBlocks(const SparseMatrix& matrix, Type type);

  Type type() const { return type_; }
  uint32_t rows() const { return rows_; }
  uint32_t cols() const { return cols_; }
  uint32_t block_size() const { return order_.block_size; }
  uint32_t block_rows() const { return index_.rows(); }
  uint32_t block_cols() const { return (cols_ + block_size() - 1) / block_size(); }
  uint64_t blocks() const { return index_.blocks(); }
  /// Blocks that there is room for: of a static weight, those that it has.
  uint64_t capacity() const { return capacity_; }
  /// Whether the pattern may change.
  bool is_dynamic() const { return is_dynamic_; }
  const BlockOrder& order() const { return order_; }

  /// Stored values inside the matrix, so without the overhang.
  uint64_t non_zeros() const;

  /// Values of `type()`, capacity() × order().block_values(), aligned to a cache line.
  std::span<const std::byte> values() const { return {values_.get(), value_bytes()}; }
  std::span<std::byte> values() { return {values_.get(), value_bytes()}; }

  /// The blocks by rows of blocks.
  const BlockIndex& index() const { return index_; }

  /// The blocks by columns of blocks, their slots too: the index of the transposed weight, over the
  /// same values. Built on first use; from several threads at once if need be.
  const BlockIndex& transposed_index() const;

  /// Bytes of values and index, the transposed one where it has been built.
  uint64_t bytes() const;

  /// Replaces all values, given as those of SparseMatrix. One pass.
  void set_values(std::span<const float> values);

  /// The values as those of SparseMatrix, the overhang as zeros. One pass.
  void get_values(std::span<float> values) const;

  /// Takes the values at the pattern from a dense matrix.
  void set_values_from(MatrixView<const float> dense);

 private:
  struct Transposed;
  struct FreeTransposed {
    void operator()(Transposed* transposed) const;
  };

  size_t value_bytes() const { return capacity_ * order_.block_values() * size_of(type_); }
  template <class Visit>
  void for_each_value(Visit&& visit) const;
  void store(uint64_t i, float value);

  Type type_;
  uint32_t rows_ = 0;
  uint32_t cols_ = 0;
  uint64_t capacity_ = 0;
  bool is_dynamic_ = false;
  BlockOrder order_;
  BlockIndex index_;
  std::unique_ptr<Transposed, FreeTransposed> transposed_;
  base::Buffer values_;
};

}  // namespace tessera::sparse
