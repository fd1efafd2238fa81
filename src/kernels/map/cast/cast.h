// SIMD form of casts.
#pragma once

#include <tessera/types.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/integer_types.h"
#include "program/codelet.h"

namespace tessera::kernels {

/// Converts a number to u32 or i32: truncates fractions; NaN becomes 0, and a number beyond the type's range
/// the nearest in range.
inline double to_integer(Type type, double number) {
  const bool is_signed = type == Type::i32;
  const double least = is_signed ? -2147483648.0 : 0, most = is_signed ? 2147483647.0 : 4294967295.0;
  return std::isnan(number) ? 0 : std::clamp(std::trunc(number), least, most);
}
/// Converts a number between types; integers to integers modulo 2^32.
inline double converted(Type from, Type to, double number) {
  if (!is_integer(to)) return number;
  if (!is_integer(from)) return to_integer(to, number);
  const auto bits = static_cast<uint32_t>(static_cast<int64_t>(number));
  return to == Type::i32 ? 1.0 * static_cast<int32_t>(bits) : 1.0 * bits;
}

/// Converts `count` contiguous elements.
void run_cast(Type from, Type to, const std::byte* in, size_t count, std::byte* out);
/// out = in, converted to the type of out. Fields of one shape.
void apply_cast(const program::FieldView& in, const program::FieldView& out);

}  // namespace tessera::kernels
