// Splits fields of equal shape into contiguous runs of elements, whatever their strides.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/common/element.h"

namespace tessera::kernels {

/// The field with rows and columns exchanged.
inline program::FieldView transposed(program::FieldView field) {
  std::swap(field.rows, field.cols);
  std::swap(field.row_stride, field.col_stride);
  return field;
}

/// The field, transposed unless it is one of columns.
inline program::FieldView as_columns(const program::FieldView& field, bool is_columns) {
  return is_columns ? field : transposed(field);
}

/// The field broadcast to the shape of `like`: a single row stands for every row, a single column for every
/// column.
inline program::FieldView broadcast_to(program::FieldView field, const program::FieldView& like) {
  if (field.rows == 1 && like.rows != 1) field.row_stride = 0;
  if (field.cols == 1 && like.cols != 1) field.col_stride = 0;
  field.rows = like.rows;
  field.cols = like.cols;
  return field;
}

/// Copies `count` elements that lie `from_stride` and `to_stride` elements apart.
inline void copy_strided(size_t element_bytes, const std::byte* from, int64_t from_stride, std::byte* to,
                         int64_t to_stride, size_t count) {
  const auto copy = [&]<class T>(T) {
    for (size_t i = 0; i < count; ++i)
      store(to + static_cast<int64_t>(i) * to_stride * static_cast<int64_t>(sizeof(T)),
            load<T>(from + static_cast<int64_t>(i) * from_stride * static_cast<int64_t>(sizeof(T))));
  };
  switch (element_bytes) {
    case 1: return copy(uint8_t{});
    case 2: return copy(uint16_t{});
    case 4: return copy(uint32_t{});
    default: return copy(uint64_t{});
  }
}

/// Calls kernel(pointers, count) on contiguous runs of elements that cover the fields; the last field is
/// written, the others are read. Strided elements go through small buffers.
template <size_t N, class Kernel>
class LineWalk {
 public:
  LineWalk(const std::array<program::FieldView, N>& fields, const Kernel& kernel)
      : fields_(fields), kernel_(kernel) {}

  void run() {
    if (fields_[0].empty()) return;
    if (all([](const auto& f) { return f.row_stride == 1 && f.col_stride != 1; }))
      for (program::FieldView& field : fields_) field = transposed(field);
    const bool contiguous = all([](const auto& f) { return f.col_stride == 1; });
    if (contiguous && all([](const auto& f) { return f.row_stride == f.cols || f.rows == 1; }))
      return direct(0, fields_[0].elements());
    if (contiguous && fields_[0].cols <= kRepeatedElements / 2 && fields_[N - 1].row_stride != 0 &&
        all([](const auto& f) { return f.row_stride == f.cols || f.row_stride == 0; }))
      return repeated();
    for (uint32_t row = 0; row < fields_[0].rows; ++row)
      contiguous ? direct(row, fields_[0].cols) : staged(row);
  }

 private:
  static constexpr size_t kStagedElements = 256;
  static constexpr size_t kRepeatedElements = 512;

  template <class Holds>
  bool all(const Holds& holds) const {
    return std::all_of(fields_.begin(), fields_.end(), holds);
  }

  void direct(uint32_t row, size_t count) const {
    std::array<std::byte*, N> at;
    for (size_t f = 0; f < N; ++f) at[f] = address_of(fields_[f], row, 0);
    kernel_(at, count);
  }

  /// Several short rows at once, with as many copies of a row that stands for every row.
  void repeated() const {
    alignas(64) std::array<std::array<std::byte, kRepeatedElements * 8>, N> copies;
    const uint32_t cols = fields_[0].cols, rows = fields_[0].rows;
    const auto step = std::min<uint32_t>(rows, kRepeatedElements / cols);
    for (size_t f = 0; f < N; ++f) {
      const size_t bytes = cols * size_of(fields_[f].type);
      for (uint32_t i = 0; fields_[f].row_stride == 0 && i < step; ++i)
        std::memcpy(copies[f].data() + i * bytes, address_of(fields_[f], 0, 0), bytes);
    }
    for (uint32_t row = 0; row < rows; row += step) {
      std::array<std::byte*, N> at;
      for (size_t f = 0; f < N; ++f)
        at[f] = fields_[f].row_stride == 0 ? copies[f].data() : address_of(fields_[f], row, 0);
      kernel_(at, size_t{std::min(step, rows - row)} * cols);
    }
  }

  void staged(uint32_t row) const {
    alignas(64) std::array<std::array<std::byte, kStagedElements * 8>, N> buffers;
    const program::FieldView& out = fields_[N - 1];
    for (uint32_t col = 0; col < out.cols; col += kStagedElements) {
      const size_t count = std::min<size_t>(kStagedElements, out.cols - col);
      std::array<std::byte*, N> at;
      for (size_t f = 0; f < N; ++f) {
        const program::FieldView& field = fields_[f];
        at[f] = field.col_stride == 1 ? address_of(field, row, col) : buffers[f].data();
        const bool is_filled = field.col_stride == 0 && col > 0;
        if (f + 1 < N && field.col_stride != 1 && !is_filled)
          copy_strided(size_of(field.type), address_of(field, row, col), field.col_stride, at[f], 1, count);
      }
      kernel_(at, count);
      if (out.col_stride != 1)
        copy_strided(size_of(out.type), at[N - 1], 1, address_of(out, row, col), out.col_stride, count);
    }
  }

  std::array<program::FieldView, N> fields_;
  const Kernel& kernel_;
};

template <size_t N, class Kernel>
void for_each_run(const std::array<program::FieldView, N>& fields, const Kernel& kernel) {
  LineWalk<N, Kernel>(fields, kernel).run();
}

}  // namespace tessera::kernels
