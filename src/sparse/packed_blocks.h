// A block-sparse weight in the order in which the block kernels read it: the master copy.
#pragma once

#include <tessera/sparse.h>
#include <tessera/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"

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

/// A sparse weight: one array of values, the master copy, with its index on top. The blocks stand
/// in the order of the BSR pattern, the values of a block as BlockOrder says. What overhangs the
/// matrix is stored as zeros and takes part in nothing.
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
  uint32_t block_rows() const { return static_cast<uint32_t>(row_begin_.size() - 1); }
  uint32_t block_cols() const { return (cols_ + block_size() - 1) / block_size(); }
  uint64_t blocks() const { return row_begin_.back(); }
  const BlockOrder& order() const { return order_; }

  /// Stored values inside the matrix, so without the overhang.
  uint64_t non_zeros() const;

  /// Values of `type()`, aligned to a cache line.
  std::span<const std::byte> values() const { return {values_.get(), value_bytes()}; }
  std::span<std::byte> values() { return {values_.get(), value_bytes()}; }

  /// First block of each block row; block_rows() + 1 entries.
  std::span<const uint32_t> row_begin() const { return row_begin_; }

  /// Block column of each block, of `column_type()`: u16 where that suffices, else u32.
  std::span<const std::byte> columns() const { return columns_; }
  Type column_type() const { return column_type_; }

  /// Bytes of values and index.
  uint64_t bytes() const;

  /// Replaces all values, given as those of SparseMatrix. One pass.
  void set_values(std::span<const float> values);

  /// The values as those of SparseMatrix, the overhang as zeros. One pass.
  void get_values(std::span<float> values) const;

  /// Takes the values at the pattern from a dense matrix.
  void set_values_from(MatrixView<const float> dense);

 private:
  size_t value_bytes() const { return blocks() * order_.block_values() * size_of(type_); }
  uint32_t column(uint64_t block) const;
  template <class Visit>
  void for_each_value(Visit&& visit) const;
  void store(uint64_t i, float value);

  Type type_;
  Type column_type_ = Type::u16;
  uint32_t rows_ = 0;
  uint32_t cols_ = 0;
  BlockOrder order_;
  std::vector<uint32_t> row_begin_;
  std::vector<std::byte> columns_;
  base::Buffer values_;
};

}  // namespace tessera::sparse
