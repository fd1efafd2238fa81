#include "sparse/blocks/packed_blocks.h"

#include <array>
#include <cstring>

#include "sparse/blocks/block_values.h"
#include "sparse/blocks/packed_blocks_inside.h"
#include "sparse/packed_values.h"
#include "sparse/pattern.h"

namespace tessera::sparse {
namespace {

void check(const Pattern& pattern) {
  if (!is_kernel_block_size(pattern.block_size)) {
    malformed("a block size of {} has no kernel; cover the non-zeros with blocks of 4, 8, 16 or 32",
              pattern.block_size);
  }
  validate(pattern);
}

/// A capacity, before room for it is allocated.
uint64_t checked(uint64_t capacity) {
  if (capacity > UINT32_MAX) malformed("{} blocks; at most 2^32 - 1 can be told apart", capacity);
  return capacity;
}

}  // namespace

bool is_kernel_block_size(uint32_t block_size) {
  return block_size == 4 || block_size == 8 || block_size == 16 || block_size == 32;
}

Pattern full_pattern(uint32_t rows, uint32_t cols, uint32_t block_size) {
  Pattern pattern{rows, cols, block_size, {0}, {}};
  const uint32_t block_cols = pattern.block_cols();
  pattern.col_indices.reserve(uint64_t{pattern.block_rows()} * block_cols);
  for (uint32_t r = 0; r < pattern.block_rows(); ++r) {
    for (uint32_t c = 0; c < block_cols; ++c) pattern.col_indices.push_back(c);
    pattern.crow_indices.push_back(pattern.col_indices.size());
  }
  return pattern;
}

void PackedBlocks::Free::operator()(Transposed* transposed) const { delete transposed; }
void PackedBlocks::Free::operator()(Changes* changes) const { delete changes; }

namespace {

/// Whether the blocks in a column of a full pattern would map to few cache sets, which are selected by low
/// address bits.
bool has_columns_in_few_sets(const Pattern& pattern, uint64_t block_bytes) {
  constexpr uint64_t kSpan = 4096;
  const uint64_t all = uint64_t{pattern.block_rows()} * pattern.block_cols();
  return all > 0 && pattern.blocks() == all && pattern.block_cols() * block_bytes % kSpan == 0;
}

SlotOrder order_for(const Pattern& pattern, Type type) {
  if (!is_kernel_block_size(pattern.block_size)) return SlotOrder::in_turn;  // rejected by check()
  const uint64_t block_bytes = uint64_t{pattern.block_size} * pattern.block_size * size_of(type);
  return has_columns_in_few_sets(pattern, block_bytes) ? SlotOrder::rotated : SlotOrder::in_turn;
}

/// Rotates the slots of each row of a full pattern by the row's number: the blocks of a column are then a row
/// plus a block apart.
void rotate_slots(BlockIndex& index, uint32_t cols) {
  for (uint32_t r = 0; r < index.rows(); ++r)
    for (uint32_t c = 0; c < cols; ++c)
      index.slots[index.row_begin[r] + c] = index.row_begin[r] + (c + r) % cols;
}

}  // namespace

PackedBlocks::PackedBlocks(const Pattern& pattern, Type type, uint64_t capacity, SlotOrder order,
                           bool has_values)
    : type_(type),
      rows_(pattern.rows),
      cols_(pattern.cols),
      capacity_(checked(capacity)),
      slot_order_(order),
      order_(order_of(pattern.block_size)),
      transposed_(new Transposed),
      changes_(is_dynamic() ? new Changes(capacity) : nullptr) {
  validate_weight_type(type);
  check(pattern);
  check_capacity(pattern.blocks());
  index_ = empty_index(pattern.block_rows(), pattern.block_cols(), capacity_, order != SlotOrder::in_turn);
  set_positions(index_, pattern);
  if (is_dynamic()) number_slots();
  if (order == SlotOrder::rotated) rotate_slots(index_, pattern.block_cols());
  if (!has_values) return;
  values_ = base::allocate_buffer(capacity_ * block_bytes());
  std::memset(values_.get(), 0, value_bytes());
}

PackedBlocks::PackedBlocks(const Pattern& pattern, Type type)
    : PackedBlocks(pattern, type, order_for(pattern, type)) {}

PackedBlocks::PackedBlocks(const Pattern& pattern, Type type, SlotOrder order)
    : PackedBlocks(pattern, type, pattern.blocks(), order) {}

PackedBlocks::PackedBlocks(const Pattern& pattern, Type type, uint64_t capacity)
    : PackedBlocks(pattern, type, capacity, SlotOrder::dynamic) {}

PackedBlocks PackedBlocks::without_values(const Pattern& pattern, Type type,
                                          std::optional<uint64_t> capacity) {
  return {pattern, type, capacity.value_or(pattern.blocks()),
          capacity ? SlotOrder::dynamic : SlotOrder::in_turn, false};
}

PackedBlocks::PackedBlocks(const SparseMatrix& matrix, Type type) : PackedBlocks(matrix.pattern, type) {
  set_values(matrix.values);
}

const BlockIndex& PackedBlocks::transposed_index() const {
  Transposed& t = *transposed_;
  if (t.is_current.load(std::memory_order_acquire)) return t.index;
  const std::lock_guard lock(t.mutex);
  if (t.is_current.load(std::memory_order_relaxed)) return t.index;
  if (!t.is_allocated) {
    t.index = empty_index(block_cols(), block_rows(), capacity_, true);
    t.is_allocated = true;
  }
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
  return value_bytes() + index_.bytes() + (transposed_->is_current ? transposed_->index.bytes() : 0) +
         (is_dynamic() ? changes_->bytes() : 0);
}

Pattern PackedBlocks::pattern() const {
  Pattern pattern{rows_, cols_, block_size(), {}, {}};
  pattern.crow_indices.assign(index_.row_begin.begin(), index_.row_begin.end());
  with_columns(index_, [&](const auto* columns) { pattern.col_indices.assign(columns, columns + blocks()); });
  return pattern;
}

// Calls visit(block, row, column, height, width) for each block of some block rows: its number, its first row
// and column, and its extent inside the matrix.
template <class Visit>
void PackedBlocks::for_each_block(uint32_t row_begin, uint32_t row_end, Visit&& visit) const {
  const uint32_t b = block_size();
  for (uint32_t r = row_begin; r < row_end; ++r) {
    for (uint64_t i = index_.row_begin[r]; i < index_.row_begin[r + 1]; ++i) {
      const uint32_t col = index_.column(i) * b;
      visit(i, r * b, col, std::min(b, rows_ - r * b), std::min(b, cols_ - col));
    }
  }
}

namespace {

/// A block without the part that overhangs the matrix.
class Trimmed {
 public:
  const float* operator()(uint32_t b, const float* block, uint32_t height, uint32_t width) {
    if (height == b && width == b) return block;
    std::fill(values_.begin(), values_.end(), 0.0F);
    for (uint32_t r = 0; r < height; ++r) std::copy_n(block + r * b, width, values_.data() + r * b);
    return values_.data();
  }

 private:
  std::array<float, 32 * 32> values_;
};

}  // namespace

template <class T>
void PackedBlocks::pack_rows(uint32_t row_begin, uint32_t row_end, const float* values, T* packed) const {
  const uint32_t b = block_size();
  const size_t step = order_.block_values();
  Trimmed trim;
  for_each_block(row_begin, row_end, [&](uint64_t i, uint32_t, uint32_t, uint32_t height, uint32_t width) {
    pack_block(b, trim(b, values + i * step, height, width), packed + index_.slot(i) * step);
  });
}

template <class T>
void PackedBlocks::unpack_all(const T* packed, float* values) const {
  const uint32_t b = block_size();
  const size_t step = order_.block_values();
  Trimmed trim;
  for_each_block(0, block_rows(), [&](uint64_t i, uint32_t, uint32_t, uint32_t height, uint32_t width) {
    float* block = values + i * step;
    unpack_block(b, packed + index_.slot(i) * step, block);
    const float* trimmed = trim(b, block, height, width);
    if (trimmed != block) std::copy_n(trimmed, step, block);
  });
}

void PackedBlocks::check_count(const char* what, size_t have, uint64_t blocks) const {
  const uint64_t want = blocks * order_.block_values();
  if (have != want)
    malformed("{} of {} values; {} blocks of {} are {}", what, have, blocks, order_.block_values(), want);
}

void PackedBlocks::set_values(std::span<const float> values, const base::ParallelFor& parallel) {
  check_count("an array", values.size(), blocks());
  with_values(type_, values_.get(), [&](auto* packed) {
    for_each_part(
        block_rows(), parts_for(value_bytes()), parallel,
        [&](uint32_t, uint32_t begin, uint32_t end) { pack_rows(begin, end, values.data(), packed); });
  });
}

void PackedBlocks::get_values(std::span<float> values) const {
  check_count("room", values.size(), blocks());
  with_values(type_, values_.get(), [&](const auto* packed) { unpack_all(packed, values.data()); });
}

void PackedBlocks::pack(std::span<const float> values, std::span<float> packed) const {
  check_count("an array", values.size(), blocks());
  check_count("packed room", packed.size(), capacity_);
  if (is_dynamic()) std::fill(packed.begin(), packed.end(), 0.0F);
  pack_rows(0, block_rows(), values.data(), packed.data());
}

void PackedBlocks::unpack(std::span<const float> packed, std::span<float> values) const {
  check_count("a packed array", packed.size(), capacity_);
  check_count("room", values.size(), blocks());
  unpack_all(packed.data(), values.data());
}

}  // namespace tessera::sparse
