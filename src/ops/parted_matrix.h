// Matrices stored part by part, as plans of dense products lay out their operands.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "program/box.h"

namespace tessera::ops {

/// A rows × cols matrix divided into slices, which are computed one after another, and each slice into a grid
/// of parts. A slice is one row of storage, a part a run of elements within it, row by row. Slices have equal
/// size: the last ones are padded with 0.
class PartedMatrix {
 public:
  PartedMatrix() = default;
  /// Parts consist of whole grains.
  PartedMatrix(uint32_t rows, uint32_t cols, uint32_t row_slices, uint32_t col_slices, uint32_t row_parts,
               uint32_t row_grain, uint32_t col_parts, uint32_t col_grain);

  uint32_t rows() const { return rows_; }
  uint32_t cols() const { return cols_; }
  uint32_t slices() const { return row_slices_ * col_slices_; }
  uint32_t slice_elements() const { return row_begin_.back() * col_begin_.back(); }
  uint64_t elements() const { return uint64_t{slices()} * slice_elements(); }
  uint32_t row_parts() const { return static_cast<uint32_t>(row_begin_.size()) - 1; }
  uint32_t col_parts() const { return static_cast<uint32_t>(col_begin_.size()) - 1; }
  uint32_t rows_of(uint32_t i) const { return row_begin_[i + 1] - row_begin_[i]; }
  uint32_t cols_of(uint32_t j) const { return col_begin_[j + 1] - col_begin_[j]; }

  /// First and last column of part (i, j) in storage.
  uint32_t begin(uint32_t i, uint32_t j) const {
    return row_begin_[i] * col_begin_.back() + col_begin_[j] * rows_of(i);
  }
  uint32_t elements_of(uint32_t i, uint32_t j) const { return rows_of(i) * cols_of(j); }
  /// Part (i, j) in row `row` of a variable of this layout.
  program::Box part(uint32_t row, uint32_t i, uint32_t j) const {
    return {row, 1, begin(i, j), elements_of(i, j)};
  }

  /// First row of the matrix in part row i of a slice.
  uint32_t first_row(uint32_t slice, uint32_t i) const {
    return slice / col_slices_ * row_begin_.back() + row_begin_[i];
  }

  /// Rows and columns of the matrix in part (i, j) of a slice, without padding.
  program::Box in_matrix(uint32_t slice, uint32_t i, uint32_t j) const;

  /// Elements that are consecutive in a row of the matrix and in storage.
  struct Run {
    uint64_t first = 0;   ///< position in the row-major matrix
    uint64_t stored = 0;  ///< position in storage
    uint64_t count = 0;
  };
  /// All runs, in storage order.
  std::vector<Run> runs() const;

  /// Converts the matrix (row-major) to its stored form, and back.
  std::vector<float> store(std::span<const float> matrix) const;
  void load(std::span<const float> stored, std::span<float> matrix) const;

  bool operator==(const PartedMatrix&) const = default;

 private:
  uint32_t rows_ = 0;
  uint32_t cols_ = 0;
  uint32_t row_slices_ = 1;
  uint32_t col_slices_ = 1;
  std::vector<uint32_t> row_begin_ = {0};
  std::vector<uint32_t> col_begin_ = {0};
};

}  // namespace tessera::ops
