// Parts of single rows of fields.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/common/element.h"

namespace tessera::kernels {

/// At most `cols` elements of a row, with a row stride of 0, so that a single element is not taken for a
/// column.
inline program::FieldView part_of_row(const program::FieldView& field, uint32_t row, uint32_t col,
                                      uint32_t cols) {
  return {address_of(field, row, col), field.type, 1, std::min(cols, field.cols - col), 0, field.col_stride};
}

}  // namespace tessera::kernels
