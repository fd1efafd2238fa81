// The order of values inside a block of a weight.
#pragma once

#include <cstdint>

namespace tessera::sparse {

/// The order of values inside a block: strips of `strip_rows` rows; in a strip groups of `group` columns; in
/// a group row after row. Value (r, c) of a block is at `offset(r, c)`.
///
/// One stream then serves every n: at large n the kernels broadcast one value after another; at small n one
/// vector load gets the values of several rows for a group of columns, to be multiplied by the same group of
/// X repeated. Groups of 2 also suit 16-bit matrix units.
struct BlockOrder {
  uint32_t block_size = 8;
  uint32_t strip_rows = 8;
  uint32_t group = 2;

  constexpr uint32_t block_values() const { return block_size * block_size; }
  constexpr uint32_t strip_values() const { return block_size * strip_rows; }
  constexpr uint32_t offset(uint32_t r, uint32_t c) const {
    return r / strip_rows * strip_values() + c / group * (strip_rows * group) + r % strip_rows * group +
           c % group;
  }
};

/// 8 rows and groups of 2 columns; 4 rows and groups of 4, which is row-major, for 4 × 4 blocks.
constexpr BlockOrder order_of(uint32_t block_size) {
  return block_size == 4 ? BlockOrder{4, 4, 4} : BlockOrder{block_size, 8, 2};
}

}  // namespace tessera::sparse
