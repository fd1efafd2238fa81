// The positions of a dense matrix's non-zeros: one bit per element.
#pragma once

#include <tessera/sparse.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera::sparse {

/// Bit j % 64 of word j / 64 of a row says whether its element j is a non-zero. Bits after the last column
/// are 0.
class BitMatrix {
 public:
  BitMatrix(uint32_t rows, uint32_t cols)
      : rows_(rows), cols_(cols), row_words_((uint64_t{cols} + 63) / 64), words_(row_words_ * rows) {}

  uint32_t rows() const { return rows_; }
  uint32_t cols() const { return cols_; }
  size_t row_words() const { return row_words_; }
  std::span<uint64_t> row(uint32_t r) { return {words_.data() + r * row_words_, row_words_}; }
  std::span<const uint64_t> row(uint32_t r) const { return {words_.data() + r * row_words_, row_words_}; }

  /// Bytes of a matrix of this size.
  static uint64_t bytes_of(uint64_t rows, uint64_t cols) { return (cols + 63) / 64 * 8 * rows; }

 private:
  uint32_t rows_;
  uint32_t cols_;
  size_t row_words_;
  std::vector<uint64_t> words_;
};

/// How the bytes of an element are read: a floating-point number may be -0, which is a zero.
struct ElementForm {
  uint32_t bytes = 4;  ///< 1, 2, 4 or 8
  bool has_sign_bit = true;
};

/// Sets `bits`, a row of a BitMatrix, to the non-zeros of `count` contiguous elements at any address. NaN is
/// a non-zero.
void set_non_zeros(ElementForm form, const std::byte* elements, size_t count, std::span<uint64_t> bits);

/// The blocks with a non-zero, as a pattern: block size 1, 4, 8, 16, 32 or 64.
Pattern pattern_of(const BitMatrix& bits, uint32_t block_size);

}  // namespace tessera::sparse
