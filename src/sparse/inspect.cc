#include "sparse/inspect.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <array>
#include <bit>

#include "sparse/bit_groups.h"
#include "sparse/pattern.h"

namespace tessera::sparse {
namespace {

constexpr std::array<uint32_t, 4> kBlockSizes = {4, 8, 16, 32};  // each divides the next, and a word

double fraction_of(const Inspection& in, uint64_t elements) {
  const double all = static_cast<double>(in.rows) * in.cols;
  return all == 0 ? 0 : static_cast<double>(elements) / all;
}

BlockCovering covering_of(const Inspection& in, uint32_t block_size, uint64_t blocks, uint64_t stored) {
  return {.block_size = block_size,
          .blocks = blocks,
          .density = fraction_of(in, stored),
          .fill_in = in.non_zeros == 0 ? 1 : static_cast<double>(stored) / static_cast<double>(in.non_zeros)};
}

BlockCovering describe(const Inspection& in, const Pattern& covering) {
  return covering_of(in, covering.block_size, covering.blocks(), stored_elements(covering));
}

uint32_t columns_of(const BitMatrix& bits) { return bits.cols(); }
uint32_t columns_of(const Pattern& pattern) { return pattern.cols; }

uint64_t count_bits(const std::vector<uint64_t>& words) {
  uint64_t count = 0;
  for (const uint64_t word : words) count += static_cast<uint64_t>(std::popcount(word));
  return count;
}

/// Counts the blocks of one size in rows that come one after the other.
class BlockCounter {
 public:
  BlockCounter(uint32_t block_size, uint32_t cols, size_t words)
      : block_size_(block_size), cols_(cols), any_(words) {}

  /// The rows so far of the present row of blocks.
  std::vector<uint64_t>& any() { return any_; }

  /// Ends a row of blocks, with `height` rows in the matrix.
  void finish(uint32_t height) {
    uint64_t count = 0;
    for (const uint64_t word : any_)
      count += static_cast<uint64_t>(std::popcount(groups_with_any(word, block_size_)));
    blocks_ += count;
    stored_ += (count * block_size_ - overhang()) * height;
    std::ranges::fill(any_, 0);
  }

  uint32_t block_size() const { return block_size_; }
  BlockCovering covering(const Inspection& in) const {
    return covering_of(in, block_size_, blocks_, stored_);
  }

 private:
  /// Columns outside the matrix of the last block, if it has a non-zero.
  uint32_t overhang() const {
    const uint32_t inside = cols_ % block_size_;
    if (inside == 0) return 0;
    return any_.back() >> (cols_ - inside) % 64 == 0 ? 0 : block_size_ - inside;
  }

  uint32_t block_size_;
  uint32_t cols_;
  std::vector<uint64_t> any_;
  uint64_t blocks_ = 0;
  uint64_t stored_ = 0;
};

/// The counts of the rows of a matrix of bits.
class RowCounter {
 public:
  explicit RowCounter(const BitMatrix& bits) : rows_(bits.rows()), any_(bits.row_words()) {
    for (const uint32_t block_size : kBlockSizes) blocks_.emplace_back(block_size, bits.cols(), any_.size());
    result_.rows = bits.rows();
    result_.cols = bits.cols();
  }

  void add(uint32_t r, std::span<const uint64_t> row) {
    std::vector<uint64_t>& of_four = blocks_.front().any();
    uint64_t non_zeros = 0, threes = 0;
    for (size_t w = 0; w < row.size(); ++w) {
      of_four[w] |= row[w];
      non_zeros += static_cast<uint64_t>(std::popcount(row[w]));
      threes |= fours_with_three(row[w]);
    }
    result_.non_zeros += non_zeros;
    result_.zero_rows += non_zeros == 0 ? 1 : 0;
    result_.is_2_4 = result_.is_2_4 && threes == 0;
    finish_blocks(r + 1);
  }

  Inspection result() && {
    result_.density = fraction_of(result_, result_.non_zeros);
    result_.zero_cols = static_cast<uint32_t>(result_.cols - count_bits(any_));
    result_.coverings.push_back(covering_of(result_, 1, result_.non_zeros, result_.non_zeros));
    for (const BlockCounter& counter : blocks_) result_.coverings.push_back(counter.covering(result_));
    return std::move(result_);
  }

 private:
  /// Finishes the rows of blocks that end before row `r`; larger blocks consist of smaller ones.
  void finish_blocks(uint32_t r) {
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const uint32_t b = blocks_[i].block_size();
      if (r % b != 0 && r != rows_) return;
      std::vector<uint64_t>& larger = i + 1 < blocks_.size() ? blocks_[i + 1].any() : any_;
      for (size_t w = 0; w < larger.size(); ++w) larger[w] |= blocks_[i].any()[w];
      blocks_[i].finish((r - 1) % b + 1);
    }
  }

  uint32_t rows_;
  std::vector<BlockCounter> blocks_;
  std::vector<uint64_t> any_;  ///< of all rows
  Inspection result_;
};

/// Whether no aligned group of four of these ascending columns has more than two.
bool has_two_of_four(std::span<const uint32_t> columns) {
  for (size_t i = 2; i < columns.size(); ++i)
    if (columns[i] / 4 == columns[i - 2] / 4) return false;
  return true;
}

void count_rows(const Pattern& pattern, Inspection& in) {
  std::vector<bool> has_column(pattern.cols);
  for (uint32_t r = 0; r < pattern.rows; ++r) {
    const std::span columns(pattern.col_indices.data() + pattern.crow_indices[r],
                            pattern.col_indices.data() + pattern.crow_indices[r + 1]);
    in.zero_rows += columns.empty() ? 1 : 0;
    in.is_2_4 = in.is_2_4 && has_two_of_four(columns);
    for (const uint32_t col : columns) has_column[col] = true;
  }
  in.zero_cols = static_cast<uint32_t>(std::ranges::count(has_column, false));
}

}  // namespace

Inspection inspect(const BitMatrix& bits) {
  RowCounter counter(bits);
  for (uint32_t r = 0; r < bits.rows(); ++r) counter.add(r, bits.row(r));
  return std::move(counter).result();
}

Inspection inspect(const Pattern& pattern) {
  if (pattern.block_size != 1) {
    throw UsageError(fmt::format("inspecting a pattern of block size {}; it must be 1", pattern.block_size));
  }
  Inspection result;
  result.rows = pattern.rows;
  result.cols = pattern.cols;
  result.non_zeros = stored_elements(pattern);
  result.density = density(pattern);
  result.coverings.push_back(describe(result, pattern));
  // Each size divides the next, so covering the previous covering gives the same result, faster.
  Pattern covering = cover(pattern, kBlockSizes[0]);
  result.coverings.push_back(describe(result, covering));
  for (size_t i = 1; i < kBlockSizes.size(); ++i) {
    covering = cover(covering, kBlockSizes[i]);
    result.coverings.push_back(describe(result, covering));
  }
  count_rows(pattern, result);
  return result;
}

NonZeros taps_first(const NonZeros& non_zeros, uint32_t channels) {
  const uint32_t cols = std::visit([](const auto& form) { return columns_of(form); }, non_zeros);
  const uint32_t taps = cols / channels;
  const auto place = [&](uint32_t col) { return col % taps * channels + col / taps; };
  if (const auto* bits = std::get_if<BitMatrix>(&non_zeros)) {
    BitMatrix moved(bits->rows(), cols);
    for (uint32_t r = 0; r < bits->rows(); ++r)
      for (size_t w = 0; w < bits->row_words(); ++w)
        for (uint64_t word = bits->row(r)[w]; word != 0; word &= word - 1) {
          const uint32_t to =
              place(static_cast<uint32_t>(w * 64) + static_cast<uint32_t>(std::countr_zero(word)));
          moved.row(r)[to / 64] |= uint64_t{1} << to % 64;
        }
    return moved;
  }
  Pattern moved = std::get<Pattern>(non_zeros);
  for (uint32_t& col : moved.col_indices) col = place(col);
  for (uint32_t r = 0; r < moved.rows; ++r)
    std::sort(moved.col_indices.begin() + static_cast<int64_t>(moved.crow_indices[r]),
              moved.col_indices.begin() + static_cast<int64_t>(moved.crow_indices[r + 1]));
  return moved;
}

Inspection inspect(const NonZeros& non_zeros) {
  return std::visit([](const auto& form) { return inspect(form); }, non_zeros);
}

Pattern cover(const NonZeros& non_zeros, uint32_t block_size) {
  if (const auto* bits = std::get_if<BitMatrix>(&non_zeros)) return pattern_of(*bits, block_size);
  const auto& pattern = std::get<Pattern>(non_zeros);
  return block_size == 1 ? pattern : cover(pattern, block_size);
}

}  // namespace tessera::sparse
