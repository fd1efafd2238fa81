#include "ops/parted_matrix.h"

#include <algorithm>

#include "ops/split.h"

namespace tessera::ops {

PartedMatrix::PartedMatrix(uint32_t rows, uint32_t cols, uint32_t row_slices, uint32_t col_slices,
                           uint32_t row_parts, uint32_t row_grain, uint32_t col_parts, uint32_t col_grain)
    : rows_(rows),
      cols_(cols),
      row_slices_(row_slices),
      col_slices_(col_slices),
      row_begin_(split_evenly((rows + row_slices - 1) / row_slices, row_parts, row_grain)),
      col_begin_(split_evenly((cols + col_slices - 1) / col_slices, col_parts, col_grain)) {}

program::Box PartedMatrix::in_matrix(uint32_t slice, uint32_t i, uint32_t j) const {
  const uint32_t row = std::min(first_row(slice, i), rows_);
  const uint32_t col = std::min(slice % col_slices_ * col_begin_.back() + col_begin_[j], cols_);
  return {row, std::min(rows_of(i), rows_ - row), col, std::min(cols_of(j), cols_ - col)};
}

std::vector<PartedMatrix::Run> PartedMatrix::runs() const {
  std::vector<Run> runs;
  for (uint32_t slice = 0; slice < slices(); ++slice) {
    const uint64_t first_col = uint64_t{slice % col_slices_} * col_begin_.back();
    for (uint32_t i = 0; i < row_parts(); ++i)
      for (uint32_t j = 0; j < col_parts(); ++j) {
        const uint64_t col = first_col + col_begin_[j];
        if (col >= cols_) continue;
        const uint64_t count = std::min<uint64_t>(cols_of(j), cols_ - col);
        uint64_t stored = uint64_t{slice} * slice_elements() + begin(i, j);
        const uint64_t first = first_row(slice, i);
        for (uint64_t row = first; row < first + rows_of(i) && row < rows_; ++row, stored += cols_of(j))
          runs.push_back({row * cols_ + col, stored, count});
      }
  }
  return runs;
}

std::vector<float> PartedMatrix::store(std::span<const float> matrix) const {
  std::vector<float> stored(elements());
  for (const Run& run : runs())
    std::copy_n(matrix.begin() + static_cast<int64_t>(run.first), run.count,
                stored.begin() + static_cast<int64_t>(run.stored));
  return stored;
}

void PartedMatrix::load(std::span<const float> stored, std::span<float> matrix) const {
  for (const Run& run : runs())
    std::copy_n(stored.begin() + static_cast<int64_t>(run.stored), run.count,
                matrix.begin() + static_cast<int64_t>(run.first));
}

}  // namespace tessera::ops
