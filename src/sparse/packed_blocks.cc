#include "sparse/packed_blocks.h"

#include <tessera/error.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/buffer.h"
#include "base/half.h"
#include "sparse/pattern.h"

namespace tessera::sparse {
namespace {

[[noreturn]] void malformed(const std::string& what) {
  throw UsageError("block-sparse weight: " + what);
}

void check(const Pattern& pattern) {
  if (!is_kernel_block_size(pattern.block_size)) {
    malformed("a block size of " + std::to_string(pattern.block_size) +
              " has no kernel; cover the non-zeros with blocks of 4, 8, 16 or 32");
  }
  validate(pattern);
  if (pattern.blocks() > UINT32_MAX) malformed("more than 2^32 - 1 blocks");
}

}  // namespace

bool is_kernel_block_size(uint32_t block_size) {
  return block_size == 4 || block_size == 8 || block_size == 16 || block_size == 32;
}

BlockOrder order_of(uint32_t block_size) {
  return block_size == 4 ? BlockOrder{4, 4, 4} : BlockOrder{block_size, 8, 2};
}

Pattern full_pattern(uint32_t rows, uint32_t cols, uint32_t block_size) {
  Pattern pattern{rows, cols, block_size, {0}, {}};
  const uint32_t block_cols = pattern.block_cols();
  pattern.columns.reserve(uint64_t{pattern.block_rows()} * block_cols);
  for (uint32_t r = 0; r < pattern.block_rows(); ++r) {
    for (uint32_t c = 0; c < block_cols; ++c) pattern.columns.push_back(c);
    pattern.row_begin.push_back(pattern.columns.size());
  }
  return pattern;
}

PackedBlocks::PackedBlocks(const Pattern& pattern, Type type)
    : type_(type), rows_(pattern.rows), cols_(pattern.cols) {
  if (type != Type::f32 && type != Type::f16 && type != Type::bf16) {
    malformed("values of type " + std::string(name_of(type)) + "; use f32, f16 or bf16");
  }
  check(pattern);
  order_ = order_of(pattern.block_size);
  row_begin_.assign(pattern.row_begin.begin(), pattern.row_begin.end());
  column_type_ = pattern.block_cols() <= 0x10000 ? Type::u16 : Type::u32;
  columns_.resize(pattern.blocks() * size_of(column_type_));
  if (column_type_ == Type::u32) {
    std::memcpy(columns_.data(), pattern.columns.data(), columns_.size());
  } else {
    std::copy(pattern.columns.begin(), pattern.columns.end(),
              reinterpret_cast<uint16_t*>(columns_.data()));
  }
  values_ = base::allocate_buffer(value_bytes());
  std::memset(values_.get(), 0, value_bytes());
}

PackedBlocks::PackedBlocks(const SparseMatrix& matrix, Type type)
    : PackedBlocks(matrix.pattern, type) {
  set_values(matrix.values);
}

uint32_t PackedBlocks::column(uint64_t block) const {
  if (column_type_ == Type::u16) return reinterpret_cast<const uint16_t*>(columns_.data())[block];
  return reinterpret_cast<const uint32_t*>(columns_.data())[block];
}

uint64_t PackedBlocks::non_zeros() const {
  uint64_t count = 0;
  const uint64_t b = block_size();
  for (uint32_t r = 0; r < block_rows(); ++r) {
    const uint64_t height = std::min(b, rows_ - r * b);
    const uint64_t in_row = row_begin_[r + 1] - row_begin_[r];
    count += in_row * height * b;
    const bool edge = in_row > 0 && column(row_begin_[r + 1] - 1) == block_cols() - 1;
    if (edge) count -= height * (block_cols() * b - cols_);
  }
  return count;
}

uint64_t PackedBlocks::bytes() const {
  return value_bytes() + columns_.size() + row_begin_.size() * sizeof(uint32_t);
}

// Calls visit(position, bsr position, row, column) for each value inside the matrix.
template <class Visit>
void PackedBlocks::for_each_value(Visit&& visit) const {
  const uint64_t b = block_size();
  for (uint32_t block_row = 0; block_row < block_rows(); ++block_row) {
    const uint64_t height = std::min(b, rows_ - block_row * b);
    for (uint64_t i = row_begin_[block_row]; i < row_begin_[block_row + 1]; ++i) {
      const uint64_t col = column(i) * b;
      const uint64_t width = std::min(b, cols_ - col);
      const uint64_t base = i * order_.block_values();
      for (uint32_t r = 0; r < height; ++r) {
        for (uint32_t c = 0; c < width; ++c) {
          visit(base + order_.offset(r, c), base + r * b + c, block_row * b + r, col + c);
        }
      }
    }
  }
}

void PackedBlocks::store(uint64_t i, float value) {
  switch (type_) {
    case Type::f16: reinterpret_cast<base::Half*>(values_.get())[i] = base::to_half(value); break;
    case Type::bf16:
      reinterpret_cast<base::Bfloat16*>(values_.get())[i] = base::to_bfloat16(value);
      break;
    default: reinterpret_cast<float*>(values_.get())[i] = value;
  }
}

void PackedBlocks::set_values(std::span<const float> values) {
  if (values.size() != blocks() * order_.block_values()) {
    malformed(std::to_string(values.size()) + " values for " + std::to_string(blocks()) +
              " blocks of " + std::to_string(order_.block_values()));
  }
  for_each_value([&](uint64_t to, uint64_t from, uint64_t, uint64_t) { store(to, values[from]); });
}

void PackedBlocks::set_values_from(MatrixView<const float> dense) {
  for_each_value([&](uint64_t to, uint64_t, uint64_t row, uint64_t col) {
    store(to, dense(static_cast<int64_t>(row), static_cast<int64_t>(col)));
  });
}

void PackedBlocks::get_values(std::span<float> values) const {
  if (values.size() != blocks() * order_.block_values()) {
    malformed("room for " + std::to_string(values.size()) + " values, of " +
              std::to_string(blocks() * order_.block_values()));
  }
  std::fill(values.begin(), values.end(), 0.0F);
  for_each_value([&](uint64_t from, uint64_t to, uint64_t, uint64_t) {
    switch (type_) {
      case Type::f16:
        values[to] = base::to_float(reinterpret_cast<const base::Half*>(values_.get())[from]);
        break;
      case Type::bf16:
        values[to] = base::to_float(reinterpret_cast<const base::Bfloat16*>(values_.get())[from]);
        break;
      default: values[to] = reinterpret_cast<const float*>(values_.get())[from];
    }
  });
}

}  // namespace tessera::sparse
