// Stochastic rounding to the 16-bit floating-point types.
//
// The rounded magnitude, in multiples of the distance between neighbouring numbers of the type, is the
// integer part of the magnitude plus a random number in [0, 1) from the upper 31 bits of a word. So the
// expected result is the value, to 2^-31 of that distance; numbers of the type, zeros, infinities and signs
// are preserved; NaN becomes the NaN of rounding to nearest. The neighbour above the largest number is the
// next power of two, which counts as infinity: values between the two become either.
#pragma once

#include <bit>
#include <cstdint>

#include "base/half.h"

namespace tessera::base {

inline Bfloat16 to_bfloat16(float value, uint32_t word) {
  if (value != value) return to_bfloat16(value);
  return Bfloat16((std::bit_cast<uint32_t>(value) + (word >> 16)) >> 16);
}

inline Half to_half(float value, uint32_t word) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude >= 0x47800000) return to_half(value);  // from 65536 on, and NaN
  if (magnitude >= 0x38800000) return Half(sign | ((magnitude - 0x38000000 + (word >> 19)) >> 13));
  // Below 2^-14: multiples of 2^-24.
  const float multiple = std::bit_cast<float>(magnitude) * 0x1p24F;
  const auto whole = static_cast<uint32_t>(multiple);
  const auto fraction = static_cast<uint32_t>((multiple - static_cast<float>(whole)) * 0x1p31F);
  return Half(sign | (whole + ((fraction + (word >> 1)) >> 31)));
}

}  // namespace tessera::base
