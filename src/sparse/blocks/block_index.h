// Positions of the blocks of a block-sparse weight: the index that kernels read besides the values.
#pragma once

#include <tessera/sparse.h>
#include <tessera/types.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "base/parallel.h"

namespace tessera::sparse {

/// Blocks by block row; for a transposed weight, by the block column that is its row. The arrays of a dynamic
/// weight are sized for its capacity and do not move.
struct BlockIndex {
  std::vector<uint32_t> row_begin = {0};  ///< first block of each row; rows() + 1 entries
  std::vector<std::byte> columns;         ///< per block, of `column_type`, ascending in a row
  std::vector<uint32_t> slots;            ///< slot of each block's values; empty: its own number
  Type column_type = Type::u16;           ///< u16 if that suffices, otherwise u32

  uint32_t rows() const { return static_cast<uint32_t>(row_begin.size() - 1); }
  uint64_t blocks() const { return row_begin.back(); }
  uint64_t bytes() const;

  uint32_t column(uint64_t block) const {
    if (column_type == Type::u16) return reinterpret_cast<const uint16_t*>(columns.data())[block];
    return reinterpret_cast<const uint32_t*>(columns.data())[block];
  }
  uint32_t slot(uint64_t block) const { return slots.empty() ? static_cast<uint32_t>(block) : slots[block]; }
};

/// An index of `rows` empty rows, with space for `capacity` blocks in `cols` columns.
BlockIndex empty_index(uint32_t rows, uint32_t cols, uint64_t capacity, bool with_slots);

/// Calls visit with the columns as an array of their integer type.
template <class Index, class Visit>
void with_columns(Index& index, const Visit& visit) {
  using Byte = std::remove_pointer_t<decltype(index.columns.data())>;
  using Narrow = std::conditional_t<std::is_const_v<Byte>, const uint16_t, uint16_t>;
  using Wide = std::conditional_t<std::is_const_v<Byte>, const uint32_t, uint32_t>;
  if (index.column_type == Type::u16)
    visit(reinterpret_cast<Narrow*>(index.columns.data()));
  else
    visit(reinterpret_cast<Wide*>(index.columns.data()));
}

/// Sets the rows and columns of a pattern; slots do not change.
void set_positions(BlockIndex& index, const Pattern& pattern,
                   const base::ParallelFor& parallel = base::serial_for);

/// Sets `to` to the index of the transposed matrix, with the same slots. `to` must have a row per column of
/// `from`, and enough space.
void transpose(const BlockIndex& from, BlockIndex& to);

}  // namespace tessera::sparse
