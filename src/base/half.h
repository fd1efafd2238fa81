// The 16-bit floating-point types: conversion to and from FP32, round to nearest, ties to even.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera::base {

/// The bits of an IEEE 754 binary16.
enum class Half : uint16_t {};

/// The bits of a bfloat16: the upper half of an FP32.
enum class Bfloat16 : uint16_t {};

/// For code that is generic over the types.
inline float to_float(float value) { return value; }

inline float to_float(Bfloat16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value) << 16); }

inline Bfloat16 to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (value != value) return Bfloat16((bits >> 16) | 0x40);  // rounding could carry a NaN to infinity
  return Bfloat16((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

inline float to_float(Half value) {
  const uint32_t sign = (static_cast<uint32_t>(value) & 0x8000) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(value) & 0x7FFF;
  const uint32_t exponent = magnitude >> 10;
  if (exponent == 0) {  // zero or subnormal: a multiple of 2^-24
    const float scaled = static_cast<float>(magnitude) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | sign);
  }
  const uint32_t rebias = exponent == 31 ? 0x70000000 : 0x38000000;  // infinity and NaN keep all ones
  return std::bit_cast<float>(((magnitude << 13) + rebias) | sign);
}

/// Values beyond the largest binary16 become infinity; no saturation.
inline Half to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return Half(sign | 0x7E00 | ((magnitude >> 13) & 0x3FF));
  if (magnitude >= 0x477FF000) return Half(sign | 0x7C00);  // from 65520 on
  if (magnitude < 0x38800000) {  // below 2^-14: adding 1/2 makes FP32 round to a multiple of 2^-24
    const float rounded = std::bit_cast<float>(magnitude) + 0.5F;
    return Half(sign | (std::bit_cast<uint32_t>(rounded) - 0x3F000000));
  }
  const uint32_t odd = (magnitude >> 13) & 1;
  return Half(sign | ((magnitude - 0x38000000 + 0xFFF + odd) >> 13));
}

}  // namespace tessera::base
