#include "sparse/packed_blocks.h"

#include <tessera/error.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
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

/// The transposed index, built by whoever needs it first.
struct PackedBlocks::Transposed {
  std::mutex mutex;
  std::atomic<bool> is_current = false;
  BlockIndex index;
};

void PackedBlocks::FreeTransposed::operator()(Transposed* transposed) const { delete transposed; }

PackedBlocks::PackedBlocks(const Pattern& pattern, Type type)
    : type_(type), rows_(pattern.rows), cols_(pattern.cols), transposed_(new Transposed) {
  if (type != Type::f32 && type != Type::f16 && type != Type::bf16) {
    malformed("values of type " + std::string(name_of(type)) + "; use f32, f16 or bf16");
  }
  check(pattern);
  order_ = order_of(pattern.block_size);
  capacity_ = pattern.blocks();
  index_ = empty_index(pattern.block_rows(), pattern.block_cols(), capacity_, false);
  set_positions(index_, pattern);
  values_ = base::allocate_buffer(value_bytes());
  std::memset(values_.get(), 0, value_bytes());
}

PackedBlocks::PackedBlocks(const SparseMatrix& matrix, Type type)
    : PackedBlocks(matrix.pattern, type) {
  set_values(matrix.values);
}

const BlockIndex& PackedBlocks::transposed_index() const {
  Transposed& t = *transposed_;
  if (t.is_current.load(std::memory_order_acquire)) return t.index;
  const std::lock_guard lock(t.mutex);
  if (t.is_current.load(std::memory_order_relaxed)) return t.index;
  if (t.index.rows() != block_cols() || t.index.slots.size() != capacity_)
    t.index = empty_index(block_cols(), block_rows(), capacity_, true);
  transpose(index_, t.index);
  t.is_current.store(true, std::memory_order_release);
  return t.index;
}

uint64_t PackedBlocks::non_zeros() const {
  uint64_t count = 0;
  const uint64_t b = block_size();
  const std::vector<uint32_t>& row_begin = index_.row_begin;
  for (uint32_t r = 0; r < block_rows(); ++r) {
    const uint64_t height = std::min(b, rows_ - r * b);
    const uint64_t in_row = row_begin[r + 1] - row_begin[r];
    count += in_row * height * b;
    const bool edge = in_row > 0 && index_.column(row_begin[r + 1] - 1) == block_cols() - 1;
    if (edge) count -= height * (block_cols() * b - cols_);
  }
  return count;
}

uint64_t PackedBlocks::bytes() const {
  return value_bytes() + index_.bytes() + (transposed_->is_current ? transposed_->index.bytes() : 0);
}

// Calls visit(position, position in SparseMatrix, row, column) for each value inside the matrix.
template <class Visit>
void PackedBlocks::for_each_value(Visit&& visit) const {
  const uint64_t b = block_size();
  for (uint32_t block_row = 0; block_row < block_rows(); ++block_row) {
    const uint64_t height = std::min(b, rows_ - block_row * b);
    for (uint64_t i = index_.row_begin[block_row]; i < index_.row_begin[block_row + 1]; ++i) {
      const uint64_t col = index_.column(i) * b;
      const uint64_t width = std::min(b, cols_ - col);
      const uint64_t packed = uint64_t{index_.slot(i)} * order_.block_values();
      const uint64_t given = i * order_.block_values();
      for (uint32_t r = 0; r < height; ++r) {
        for (uint32_t c = 0; c < width; ++c) {
          visit(packed + order_.offset(r, c), given + r * b + c, block_row * b + r, col + c);
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
