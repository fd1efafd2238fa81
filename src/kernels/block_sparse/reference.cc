// The block-sparse product in plain loops.
#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "kernels/block_sparse/block_sparse.h"

namespace tessera::kernels {
namespace {

float value_at(const BlockWeight& w, size_t i) {
  switch (w.type) {
    case Type::f16: return base::to_float(static_cast<const base::Half*>(w.values)[i]);
    case Type::bf16: return base::to_float(static_cast<const base::Bfloat16*>(w.values)[i]);
    default: return static_cast<const float*>(w.values)[i];
  }
}

uint32_t column_at(const BlockWeight& w, size_t block) {
  if (w.column_type == Type::u16) return static_cast<const uint16_t*>(w.columns)[block];
  return static_cast<const uint32_t*>(w.columns)[block];
}

float dot(const BlockShare& share, uint32_t row, uint32_t col) {
  const BlockWeight& w = share.weight;
  const uint32_t b = w.block_size;
  const sparse::BlockOrder order = sparse::order_of(b);
  float sum = 0;
  for (uint32_t i = w.row_begin[row / b]; i < w.row_begin[row / b + 1]; ++i) {
    const uint32_t first = column_at(w, i) * b;
    for (uint32_t c = 0; c < std::min(b, w.cols - first); ++c) {
      const size_t at = size_t{i} * order.block_values() + order.offset(row % b, c);
      sum += value_at(w, at) * share.x(first + c, col);
    }
  }
  return sum;
}

float finish(const Epilogue& e, uint32_t row, float sum, const float& y) {
  float value = e.alpha * sum;
  if (e.beta != 0) value += e.beta * y;
  if (e.bias != nullptr) value += e.bias[row];
  switch (e.activation) {
    case Activation::none: return value;
    case Activation::relu: return value < 0 ? 0 : value;
    case Activation::gelu: return value * 0.5F * (1 + std::erf(value * std::sqrt(0.5F)));
  }
  return value;
}

}  // namespace

void block_spmm_reference(const BlockShare& share) {
  const uint32_t b = share.weight.block_size;
  const uint32_t begin = share.block_row_begin * b;
  const uint32_t end = std::min(share.block_row_end * b, share.weight.rows);
  for (uint32_t row = begin; row < end; ++row) {
    for (uint32_t col = share.col_begin; col < share.col_end; ++col) {
      float& y = share.y(row, col);
      y = finish(share.epilogue, row, dot(share, row, col), y);
    }
  }
}

}  // namespace tessera::kernels
