// Access to single elements of fields of any type, for references and samples.
#pragma once

#include <tessera/types.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "program/codelet.h"

namespace tessera::kernels {

inline std::byte* address_of(const program::FieldView& field, int64_t row, int64_t col) {
  const int64_t offset = row * field.row_stride + col * field.col_stride;
  return field.data + offset * static_cast<int64_t>(size_of(field.type));
}

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

/// The element as a number; a u64 above 2^53 is rounded.
inline double load_number(Type type, const std::byte* from) {
  switch (type) {
    case Type::f32: return load<float>(from);
    case Type::f16: return base::to_float(load<base::Half>(from));
    case Type::bf16: return base::to_float(load<base::Bfloat16>(from));
    case Type::u8: return load<uint8_t>(from);
    case Type::u16: return load<uint16_t>(from);
    case Type::u32: return load<uint32_t>(from);
    case Type::i32: return load<int32_t>(from);
    case Type::u64: return static_cast<double>(load<uint64_t>(from));
    case Type::f64: return load<double>(from);
  }
  return 0;
}

/// Stores an FP32 number, or an integer that the type holds, rounded once to nearest even.
inline void store_number(Type type, std::byte* to, double value) {
  switch (type) {
    case Type::f32: return store(to, static_cast<float>(value));
    case Type::f16: return store(to, base::to_half(static_cast<float>(value)));
    case Type::bf16: return store(to, base::to_bfloat16(static_cast<float>(value)));
    case Type::u8: return store(to, static_cast<uint8_t>(value));
    case Type::u16: return store(to, static_cast<uint16_t>(value));
    case Type::u32: return store(to, static_cast<uint32_t>(value));
    case Type::i32: return store(to, static_cast<int32_t>(value));
    case Type::u64: return store(to, static_cast<uint64_t>(value));
    case Type::f64: return store(to, value);
  }
}

inline double number_at(const program::FieldView& field, int64_t row, int64_t col) {
  return load_number(field.type, address_of(field, row, col));
}

/// The element in FP32.
inline float f32_at(const program::FieldView& field, int64_t row, int64_t col) {
  return static_cast<float>(number_at(field, row, col));
}

inline void set_number(const program::FieldView& field, int64_t row, int64_t col, double value) {
  store_number(field.type, address_of(field, row, col), value);
}

/// Whether the elements of a row are contiguous.
inline bool has_contiguous_rows(const program::FieldView& field) {
  return field.col_stride == 1 || field.cols <= 1;
}

inline void clear(const program::FieldView& field) {
  if (field.empty()) return;
  const bool contiguous = has_contiguous_rows(field);
  for (uint32_t r = 0; r < field.rows; ++r) {
    if (contiguous) std::memset(address_of(field, r, 0), 0, field.cols * size_of(field.type));
    for (uint32_t c = 0; !contiguous && c < field.cols; ++c) set_number(field, r, c, 0);
  }
}

/// Dot product of a row of `a` and a row of `b`, in FP32; 0 if either is beyond its field.
inline float row_product(const program::FieldView& a, uint32_t a_row, const program::FieldView& b,
                         uint32_t b_row) {
  float sum = 0;
  for (uint32_t j = 0; a_row < a.rows && b_row < b.rows && j < a.cols; ++j)
    sum += f32_at(a, a_row, j) * f32_at(b, b_row, j);
  return sum;
}

/// FP32 parameters are passed as their bits.
inline int64_t param_of(float value) { return std::bit_cast<uint32_t>(value); }
inline float float_of(int64_t param) { return std::bit_cast<float>(static_cast<uint32_t>(param)); }

/// Element i of an array of f32, f16 or bf16.
inline float value_at(Type type, const void* values, uint64_t i) {
  return static_cast<float>(load_number(type, static_cast<const std::byte*>(values) + i * size_of(type)));
}

}  // namespace tessera::kernels
