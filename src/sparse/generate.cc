#include "sparse/generate.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/memory.h"
#include "base/random.h"
#include "sparse/pattern.h"
#include "sparse/shuffle.h"

namespace tessera::sparse {
namespace {

using base::RandomSequence;
using base::RandomStream;

// Streams differ in their step.
enum Purpose : uint32_t { kValues, kRowCounts, kRowOrder, kColumns };

// Number of blocks in each block row.
using RowCounts = std::vector<uint32_t>;

void validate(const GeneratedMatrix& wanted) {
  if (!(wanted.density >= 0 && wanted.density <= 1)) {
    throw UsageError(fmt::format("density {}; it must be from 0 to 1", wanted.density));
  }
  validate_sizes(wanted.rows, wanted.cols, wanted.block_size);
}

void require_memory_for(const GeneratedMatrix& wanted, const Pattern& grid, uint64_t blocks) {
  const double block_bytes = 4.0 + 4.0 * wanted.block_size * wanted.block_size;
  const double bytes = static_cast<double>(blocks) * block_bytes + 16.0 * grid.block_rows();
  base::require_memory(
      bytes < 9e18 ? static_cast<uint64_t>(bytes) : UINT64_MAX,
      fmt::format("a {} x {} matrix of density {}", wanted.rows, wanted.cols, wanted.density));
}

// Distributes `blocks` distinct blocks at random over the whole grid and returns the counts per row. Blocks
// of a row are exchangeable, so "is this one taken?" is "is its index below the count so far?".
RowCounts uniform_row_counts(uint32_t rows, uint32_t cols, uint64_t blocks, uint64_t seed) {
  RowCounts counts(rows, 0);
  const uint64_t all = uint64_t{rows} * cols;
  const bool throw_gaps = blocks > all / 2;  // keeps rejections below one in two
  RandomSequence random(RandomStream(seed, kRowCounts));
  for (uint64_t left = throw_gaps ? all - blocks : blocks; left > 0;) {
    uint32_t& count = counts[random.below(rows)];
    if (random.below(cols) < count) continue;
    ++count;
    --left;
  }
  if (throw_gaps) {
    for (uint32_t& count : counts) count = cols - count;
  }
  return counts;
}

// `total` spread evenly: counts differ by at most 1.
RowCounts even_row_counts(uint32_t rows, uint64_t total) {
  RowCounts counts(rows);
  const uint64_t each = rows == 0 ? 0 : total / rows;
  const uint64_t rest = rows == 0 ? 0 : total % rows;
  for (uint64_t r = 0; r < rows; ++r) {
    counts[r] = static_cast<uint32_t>(each + (r + 1) * rest / rows - r * rest / rows);
  }
  return counts;
}

// Row of rank i gets min(cols, scale / i), in integers so that no platform rounds differently.
uint64_t zipf_total(uint32_t rows, uint32_t cols, uint64_t scale) {
  uint64_t total = 0;
  for (uint64_t rank = 1; rank <= rows; ++rank) {
    total += std::min<uint64_t>(cols, scale / rank);
  }
  return total;
}

// Blocks by rank, with the largest scale whose total does not exceed `blocks`; the remainder goes, one block
// each, to the first rows that are not full.
RowCounts zipf_counts(uint32_t rows, uint32_t cols, uint64_t blocks) {
  uint64_t scale = 0;
  for (auto bit = static_cast<int>(std::bit_width(uint64_t{rows} * cols)); bit >= 0; --bit) {
    const uint64_t larger = scale | uint64_t{1} << bit;
    if (zipf_total(rows, cols, larger) <= blocks) scale = larger;
  }
  RowCounts counts(rows);
  uint64_t left = blocks;
  for (uint64_t rank = 1; rank <= rows; ++rank) {
    counts[rank - 1] = static_cast<uint32_t>(std::min<uint64_t>(cols, scale / rank));
    left -= counts[rank - 1];
  }
  for (uint32_t& count : counts) {
    if (left == 0 || count == cols) continue;
    ++count;
    --left;
  }
  return counts;
}

RowCounts power_law_row_counts(uint32_t rows, uint32_t cols, uint64_t blocks, uint64_t seed) {
  RowCounts counts = zipf_counts(rows, cols, blocks);
  RandomSequence random(RandomStream(seed, kRowOrder));
  for (uint32_t i = rows; i > 1; --i) std::swap(counts[i - 1], counts[random.below(i)]);
  return counts;
}

// Draws sets of distinct columns.
class ColumnSampler {
 public:
  explicit ColumnSampler(uint32_t cols) : cols_(cols), taken_((size_t{cols} + 63) / 64, 0) {}

  // Writes `count` distinct columns, ascending.
  void sample(RandomSequence random, uint32_t count, uint32_t* out) {
    const bool draw_gaps = count > cols_ / 2;
    draw(random, draw_gaps ? cols_ - count : count);
    // Scanning the row's bits costs more than sorting if only few are set.
    if (!draw_gaps && count < cols_ / 64) {
      std::sort(drawn_.begin(), drawn_.end());
      std::copy(drawn_.begin(), drawn_.end(), out);
    } else {
      scan(draw_gaps ? ~uint64_t{0} : 0, out);
    }
    for (uint32_t column : drawn_) taken_[column / 64] = 0;
  }

 private:
  void draw(RandomSequence& random, uint32_t count) {
    drawn_.clear();
    while (drawn_.size() < count) {
      const uint32_t column = random.below(cols_);
      uint64_t& word = taken_[column / 64];
      const uint64_t bit = uint64_t{1} << column % 64;
      if (word & bit) continue;
      word |= bit;
      drawn_.push_back(column);
    }
  }

  void scan(uint64_t flip, uint32_t* out) const {
    for (size_t i = 0; i < taken_.size(); ++i) {
      uint64_t word = taken_[i] ^ flip;
      if (i + 1 == taken_.size() && cols_ % 64 != 0) word &= (uint64_t{1} << cols_ % 64) - 1;
      for (; word != 0; word &= word - 1) {
        *out++ = static_cast<uint32_t>(i * 64) + static_cast<uint32_t>(std::countr_zero(word));
      }
    }
  }

  uint32_t cols_;
  std::vector<uint64_t> taken_;
  std::vector<uint32_t> drawn_;
};

void fill_random_columns(Pattern& p, uint64_t seed) {
  ColumnSampler sampler(p.block_cols());
  for (uint32_t r = 0; r < p.block_rows(); ++r) {
    const auto count = static_cast<uint32_t>(p.crow_indices[r + 1] - p.crow_indices[r]);
    sampler.sample(RandomSequence(RandomStream(seed, kColumns, r)), count,
                   p.col_indices.data() + p.crow_indices[r]);
  }
}

void fill_band_columns(Pattern& p) {
  const uint64_t rows = p.block_rows();
  const uint64_t cols = p.block_cols();
  for (uint64_t r = 0; r < rows; ++r) {
    const uint64_t count = p.crow_indices[r + 1] - p.crow_indices[r];
    const uint64_t middle = (2 * r + 1) * cols / (2 * rows);
    const uint64_t first = std::min(middle - std::min(middle, count / 2), cols - count);
    const auto begin = p.col_indices.begin() + static_cast<ptrdiff_t>(p.crow_indices[r]);
    std::iota(begin, begin + static_cast<ptrdiff_t>(count), static_cast<uint32_t>(first));
  }
}

// The places of the blocks in the matrix, ascending.
std::vector<uint32_t> shuffled_places(const Pattern& grid, uint64_t blocks, uint64_t seed) {
  const uint64_t all = uint64_t{grid.block_rows()} * grid.block_cols();
  if (all > kMostShuffled)
    throw UsageError(fmt::format(
        "a shuffled pattern has at most {} blocks in a full matrix, not {}; use larger blocks, or a random "
        "pattern",
        kMostShuffled, all));
  std::vector<uint32_t> places = first_of_shuffled(all, blocks, seed);
  std::ranges::sort(places);
  return places;
}

void fill_shuffled(Pattern& p, uint64_t blocks, uint64_t seed) {
  p.crow_indices.assign(size_t{p.block_rows()} + 1, 0);
  for (uint32_t place : shuffled_places(p, blocks, seed)) {
    ++p.crow_indices[size_t{place / p.block_cols()} + 1];
    p.col_indices.push_back(place % p.block_cols());
  }
  std::partial_sum(p.crow_indices.begin(), p.crow_indices.end(), p.crow_indices.begin());
}

RowCounts row_counts(const GeneratedMatrix& wanted, const Pattern& grid, uint64_t blocks) {
  const uint32_t rows = grid.block_rows();
  const uint32_t cols = grid.block_cols();
  switch (wanted.kind) {
    case PatternKind::random: return uniform_row_counts(rows, cols, blocks, wanted.seed);
    case PatternKind::banded: return even_row_counts(rows, blocks);
    case PatternKind::power_law: return power_law_row_counts(rows, cols, blocks, wanted.seed);
    case PatternKind::shuffled: break;  // does not begin with its rows
  }
  throw UsageError(fmt::format("unknown kind of pattern: {}", static_cast<int>(wanted.kind)));
}

}  // namespace

Pattern generate_pattern(const GeneratedMatrix& wanted) {
  validate(wanted);
  Pattern p;
  p.rows = wanted.rows;
  p.cols = wanted.cols;
  p.block_size = wanted.block_size;
  const uint64_t all = uint64_t{p.block_rows()} * p.block_cols();
  const auto blocks = static_cast<uint64_t>(std::round(wanted.density * static_cast<double>(all)));
  require_memory_for(wanted, p, blocks);
  if (wanted.kind == PatternKind::shuffled) {
    fill_shuffled(p, blocks, wanted.seed);
    return p;
  }
  const RowCounts counts = row_counts(wanted, p, blocks);
  p.crow_indices.resize(counts.size() + 1);
  for (size_t r = 0; r < counts.size(); ++r) p.crow_indices[r + 1] = p.crow_indices[r] + counts[r];
  p.col_indices.resize(blocks);
  if (wanted.kind == PatternKind::banded) {
    fill_band_columns(p);
  } else {
    fill_random_columns(p, wanted.seed);
  }
  return p;
}

std::vector<float> random_values(const Pattern& pattern, uint64_t seed) {
  std::vector<float> values(stored_values(pattern));
  RandomStream(seed, kValues).fill_symmetric(values);
  return values;
}

}  // namespace tessera::sparse

namespace tessera {

SparseMatrix generate(const GeneratedMatrix& wanted) {
  SparseMatrix matrix{sparse::generate_pattern(wanted), {}};
  matrix.values = sparse::random_values(matrix.pattern, wanted.seed);
  return matrix;
}

SparseMatrix cover_with_blocks(const SparseMatrix& matrix, uint32_t block_size) {
  sparse::validate(matrix);
  return sparse::cover(matrix, block_size);
}

}  // namespace tessera
