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

template <class Visit>
void PartedMatrix::each_run(const Visit& visit) const {
  for (uint32_t slice = 0; slice < slices(); ++slice) {
    const uint64_t first_row = uint64_t{slice / col_slices_} * row_begin_.back();
    const uint64_t first_col = uint64_t{slice % col_slices_} * col_begin_.back();
    for (uint32_t i = 0; i < row_parts(); ++i)
      for (uint32_t j = 0; j < col_parts(); ++j) {
        const uint64_t col = first_col + col_begin_[j];
        if (col >= cols_) continue;
        const uint64_t count = std::min<uint64_t>(cols_of(j), cols_ - col);
        uint64_t stored = uint64_t{slice} * slice_elements() + begin(i, j);
        for (uint32_t r = row_begin_[i]; r < row_begin_[i + 1] && first_row + r < rows_;
             ++r, stored += cols_of(j))
          visit(stored, (first_row + r) * cols_ + col, count);
      }
  }
}

std::vector<float> PartedMatrix::store(std::span<const float> matrix) const {
  std::vector<float> stored(elements());
  each_run([&](uint64_t to, uint64_t from, uint64_t count) {
    std::copy_n(matrix.begin() + static_cast<int64_t>(from), count,
                stored.begin() + static_cast<int64_t>(to));
  });
  return stored;
}

void PartedMatrix::load(std::span<const float> stored, std::span<float> matrix) const {
  each_run([&](uint64_t from, uint64_t to, uint64_t count) {
    std::copy_n(stored.begin() + static_cast<int64_t>(from), count,
                matrix.begin() + static_cast<int64_t>(to));
  });
}

}  // namespace tessera::ops
