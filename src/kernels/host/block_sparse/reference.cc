// The block-sparse product in plain loops.
#include <algorithm>

#include "kernels/common/element.h"
#include "kernels/host/block_sparse/block_sparse.h"

namespace tessera::kernels {
namespace {

bool is_bf16(const BlockSlice& slice) { return slice.schedule.kernel == BlockSchedule::Kernel::bf16; }

float x_at(const BlockSlice& slice, uint32_t row, uint32_t col) {
  return is_bf16(slice) ? base::to_float(slice.x_bf16(row, col)) : slice.x(row, col);
}

float dot(const BlockSlice& slice, uint32_t row, uint32_t col) {
  const BlockWeight& w = slice.weight;
  const uint32_t b = w.block_size;
  const sparse::BlockOrder order = sparse::order_of(b);
  float sum = 0;
  for (uint32_t i = w.row_begin[row / b]; i < w.row_begin[row / b + 1]; ++i) {
    const uint32_t first = w.column(i) * b;
    const size_t block = size_t{w.slots == nullptr ? i : w.slots[i]} * order.block_values();
    for (uint32_t c = 0; c < std::min(b, w.cols - first); ++c) {
      const size_t at = block + (w.transposed ? order.offset(c, row % b) : order.offset(row % b, c));
      sum += value_at(w.type, w.values, at) * x_at(slice, first + c, col);
    }
  }
  return sum;
}

}  // namespace

void block_spmm_reference(const BlockSlice& slice) {
  if (slice.seen) {
    const std::vector<float> x = matrix_of(slice.x, slice.seen, slice.col_end);
    BlockSlice of_matrix = slice;
    of_matrix.x = row_major(x.data(), slice.col_end);
    of_matrix.seen = {};
    return block_spmm_reference(of_matrix);
  }
  const uint32_t b = slice.weight.block_size;
  const uint32_t begin = slice.block_row_begin * b;
  const uint32_t end = std::min(slice.block_row_end * b, slice.weight.rows);
  for (uint32_t row = begin; row < end; ++row) {
    for (uint32_t col = slice.col_begin; col < slice.col_end; ++col) {
      const float sum = dot(slice, row, col);
      if (is_bf16(slice)) {
        base::Bfloat16& y = slice.y_bf16(row, col);
        const float before = slice.epilogue.beta != 0 ? base::to_float(y) : 0;
        y = base::to_bfloat16(finish(slice.epilogue, row, sum, before));
      } else {
        float& y = slice.y(row, col);
        y = finish(slice.epilogue, row, sum, y);
      }
    }
  }
}

}  // namespace tessera::kernels
