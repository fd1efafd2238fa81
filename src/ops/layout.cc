#include "ops/layout.h"

#include <algorithm>

namespace tessera::ops {
namespace {

/// The transpose of a row-major matrix of rows × cols.
std::vector<float> transposed_copy(std::span<const float> matrix, uint64_t rows, uint64_t cols) {
  std::vector<float> transposed(matrix.size());
  for (uint64_t r = 0; r < rows; ++r)
    for (uint64_t c = 0; c < cols; ++c) transposed[c * rows + r] = matrix[r * cols + c];
  return transposed;
}

}  // namespace

std::vector<float> OperandLayout::store(std::span<const float> matrix) const {
  const uint32_t stored_rows = parts ? parts->rows() : rows;
  const uint32_t stored_cols = parts ? parts->cols() : cols;
  const std::vector<float> in_order = transposed ? transposed_copy(matrix, stored_cols, stored_rows)
                                                 : std::vector<float>(matrix.begin(), matrix.end());
  return parts ? parts->store(in_order) : in_order;
}

void OperandLayout::load(std::span<const float> stored, std::span<float> matrix) const {
  const uint32_t stored_rows = parts ? parts->rows() : rows;
  const uint32_t stored_cols = parts ? parts->cols() : cols;
  std::vector<float> in_order(stored.begin(), stored.end());
  if (parts) {
    in_order.resize(matrix.size());
    parts->load(stored, in_order);
  }
  std::ranges::copy(transposed ? transposed_copy(in_order, stored_rows, stored_cols) : in_order,
                    matrix.begin());
}

OperandLayout matrix_layout(uint32_t rows, uint32_t cols, std::vector<program::MappedBox> mapping) {
  return {rows, cols, std::move(mapping)};
}

OperandLayout parted_layout(PartedMatrix parts, std::vector<program::MappedBox> mapping) {
  OperandLayout layout{parts.slices(), parts.slice_elements(), std::move(mapping)};
  layout.parts = std::move(parts);
  return layout;
}

}  // namespace tessera::ops
