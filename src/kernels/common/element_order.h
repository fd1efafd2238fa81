// Maps the elements of a stored matrix to the elements of a value.
#pragma once

#include <cstdint>

namespace tessera::kernels {

/// Element (r, c) of a stored matrix is element r · row_step + ⌊c / group⌋ · group_step + (c mod group) ·
/// col_step of the value. If all columns are equidistant, groups have one column.
struct ElementOrder {
  uint32_t row_step = 0;
  uint32_t group = 1;
  uint32_t group_step = 1;
  uint32_t col_step = 0;

  static ElementOrder strided(uint32_t row_step, uint32_t col_step) { return {row_step, 1, col_step, 0}; }

  uint64_t at(uint64_t row, uint64_t col) const {
    return row * row_step + col / group * group_step + col % group * col_step;
  }
  bool operator==(const ElementOrder&) const = default;
};

}  // namespace tessera::kernels
