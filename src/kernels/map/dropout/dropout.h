// The elements that dropout keeps, and its SIMD form.
#pragma once

#include <cstdint>

#include "kernels/common/draws.h"

namespace tessera::kernels {

/// Element (r, c) is kept if number first + r · row_step + c · col_step of a stream, which is
/// uniform in [0, 1), is below `keep`.
struct DropoutMask {
  Draws draws = {};
  float keep = 1;
  uint64_t first = 0;
  uint64_t row_step = 0;
  uint64_t col_step = 1;
};

/// out = in / keep where the mask keeps the element, else 0. Fields of one shape and type. Fast if one of the
/// steps is 1.
void apply_dropout(DropoutMask mask, program::FieldView in, program::FieldView out);

}  // namespace tessera::kernels
