// SIMD form of casts.
#pragma once

#include <cstdint>

#include "program/codelet.h"

namespace tessera::kernels {

/// A number as u32: without its fraction; 0 for negative numbers and NaN, 2^32 − 1 for those too large.
inline uint32_t to_integer(double number) {
  constexpr double kMost = 4294967295.0;
  if (!(number > 0)) return 0;
  return number < kMost ? static_cast<uint32_t>(number) : ~uint32_t{0};
}

/// out = in, converted to the type of out. Fields of one shape.
void apply_cast(const program::FieldView& in, const program::FieldView& out);

}  // namespace tessera::kernels
