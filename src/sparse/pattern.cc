#include "sparse/pattern.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/memory.h"

namespace tessera::sparse {
namespace {

template <class... Args>
[[noreturn]] void reject(fmt::format_string<Args...> format, Args&&... args) {
  throw UsageError("sparse matrix: " + fmt::format(format, std::forward<Args>(args)...));
}

void validate_row_begin(const Pattern& p) {
  if (p.crow_indices.size() != size_t{p.block_rows()} + 1) {
    reject("crow_indices has {} entries; {} block rows need {}", p.crow_indices.size(), p.block_rows(),
           size_t{p.block_rows()} + 1);
  }
  if (p.crow_indices.front() != 0) reject("crow_indices[0] is {}; it must be 0", p.crow_indices.front());
  for (size_t r = 0; r < p.block_rows(); ++r) {
    if (p.crow_indices[r] > p.crow_indices[r + 1]) {
      reject("crow_indices decreases from {} to {} at block row {}", p.crow_indices[r], p.crow_indices[r + 1],
             r);
    }
  }
  if (p.crow_indices.back() != p.blocks()) {
    reject("crow_indices ends with {}, and there are {} block columns", p.crow_indices.back(), p.blocks());
  }
}

// Whether columns[begin, end) are strictly ascending and below `limit`. Without an early exit, so that it
// vectorises: it runs over every index of every input matrix.
bool ascending_below(const uint32_t* begin, const uint32_t* end, uint32_t limit) {
  if (begin == end) return true;
  uint32_t wrong = 0;
  for (const uint32_t* c = begin; c + 1 < end; ++c) wrong |= static_cast<uint32_t>(c[0] >= c[1]);
  return wrong == 0 && end[-1] < limit;
}

[[noreturn]] void reject_columns(const Pattern& p, size_t row) {
  for (uint64_t i = p.crow_indices[row]; i < p.crow_indices[row + 1]; ++i) {
    if (p.col_indices[i] >= p.block_cols()) {
      reject("block row {} has a block in column {}; there are {} block columns", row, p.col_indices[i],
             p.block_cols());
    }
    if (i > p.crow_indices[row] && p.col_indices[i - 1] >= p.col_indices[i]) {
      reject("in block row {} column {} comes after {}; columns must ascend, each once", row,
             p.col_indices[i], p.col_indices[i - 1]);
    }
  }
  reject("the columns of block row {} do not ascend", row);
}

// Rows (or columns) of block `index` that lie inside a matrix of `size`.
uint32_t inside(uint32_t index, uint32_t block_size, uint32_t size) {
  return std::min(block_size, size - index * block_size);
}

// Visits the stored elements inside the matrix: visit(row, col, index into values).
template <class Visit>
void for_each_element(const Pattern& p, Visit visit) {
  const uint32_t b = p.block_size;
  for (uint32_t r = 0; r < p.block_rows(); ++r) {
    const uint32_t height = inside(r, b, p.rows);
    for (uint64_t i = p.crow_indices[r]; i < p.crow_indices[r + 1]; ++i) {
      const uint32_t width = inside(p.col_indices[i], b, p.cols);
      for (uint32_t y = 0; y < height; ++y) {
        for (uint32_t x = 0; x < width; ++x) {
          visit(r * b + y, p.col_indices[i] * b + x, (i * b + y) * b + x);
        }
      }
    }
  }
}

// Division by a divisor that is known only at run time, but nearly always a power of two.
class Divider {
 public:
  explicit Divider(uint32_t divisor) : divisor_(divisor) {
    if ((divisor & (divisor - 1)) == 0) {
      while ((uint32_t{1} << shift_) < divisor) ++shift_;
    } else {
      shift_ = -1;
    }
  }
  uint32_t operator()(uint32_t x) const { return shift_ >= 0 ? x >> shift_ : x / divisor_; }

 private:
  uint32_t divisor_;
  int shift_ = 0;
};

// Collects the distinct block columns of block rows, one row after another.
class ColumnSet {
 public:
  explicit ColumnSet(uint32_t size) : last_row_(size, kNone) {}

  void insert(uint32_t row, uint32_t column) {
    if (last_row_[column] == row) return;
    last_row_[column] = row;
    columns_.push_back(column);
  }

  void move_to(std::vector<uint32_t>& out) {
    std::sort(columns_.begin(), columns_.end());
    out.insert(out.end(), columns_.begin(), columns_.end());
    columns_.clear();
  }

 private:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  std::vector<uint32_t> last_row_;
  std::vector<uint32_t> columns_;
};

Pattern without_blocks(uint32_t rows, uint32_t cols, uint32_t block_size) {
  validate_sizes(rows, cols, block_size);
  Pattern p{.rows = rows, .cols = cols, .block_size = block_size, .crow_indices = {}, .col_indices = {}};
  p.crow_indices.assign(size_t{p.block_rows()} + 1, 0);
  return p;
}

// Converts counts[r + 1] to the first position of each row r.
void accumulate(std::vector<uint64_t>& counts) {
  std::partial_sum(counts.begin(), counts.end(), counts.begin());
}

void validate_coordinates(uint32_t rows, uint32_t cols, const Coordinates& e) {
  if (e.rows.size() != e.cols.size() || e.rows.size() != e.values.size()) {
    reject("{} row indices, {} column indices and {} values; there must be as many of each", e.rows.size(),
           e.cols.size(), e.values.size());
  }
  for (size_t i = 0; i < e.rows.size(); ++i) {
    if (e.rows[i] >= rows || e.cols[i] >= cols) {
      reject("element ({}, {}) is outside the matrix of {} x {}", e.rows[i], e.cols[i], rows, cols);
    }
  }
}

}  // namespace

void validate_sizes(uint32_t rows, uint32_t cols, uint32_t block_size) {
  if (rows > kMaxDimension || cols > kMaxDimension) {
    reject("{} x {} elements; each side may have at most {}", rows, cols, kMaxDimension);
  }
  if (block_size < 1 || block_size > kMaxBlockSize) {
    reject("block size {}; it must be from 1 to {}", block_size, kMaxBlockSize);
  }
}

void validate(const Pattern& pattern) {
  validate_sizes(pattern.rows, pattern.cols, pattern.block_size);
  validate_row_begin(pattern);
  const uint32_t* columns = pattern.col_indices.data();
  for (size_t r = 0; r < pattern.block_rows(); ++r) {
    if (!ascending_below(columns + pattern.crow_indices[r], columns + pattern.crow_indices[r + 1],
                         pattern.block_cols())) {
      reject_columns(pattern, r);
    }
  }
}

void validate_weight_type(Type type) {
  if (type != Type::f32 && type != Type::f16 && type != Type::bf16)
    reject("values of type {}; use f32, f16 or bf16", name_of(type));
}

void validate(const SparseMatrix& matrix) {
  validate(matrix.pattern);
  const uint64_t b = matrix.pattern.block_size;
  const uint64_t blocks = matrix.pattern.blocks();
  if (matrix.values.size() % (b * b) != 0 || matrix.values.size() / (b * b) != blocks) {
    reject("{} values; {} blocks of {} x {} need {} each", matrix.values.size(), blocks, b, b, b * b);
  }
}

uint64_t stored_elements(const Pattern& p) {
  const uint64_t b = p.block_size;
  if (p.cols % b == 0 && p.rows % b == 0) return p.blocks() * b * b;
  uint64_t elements = 0;
  for (uint32_t r = 0; r < p.block_rows(); ++r) {
    uint64_t width = (p.crow_indices[r + 1] - p.crow_indices[r]) * b;
    // Only the last block of a row can overhang, since columns ascend.
    if (width > 0) width -= b - inside(p.col_indices[p.crow_indices[r + 1] - 1], p.block_size, p.cols);
    elements += width * inside(r, p.block_size, p.rows);
  }
  return elements;
}

double density(const Pattern& p) {
  const double all = static_cast<double>(p.rows) * p.cols;
  return all == 0 ? 0 : static_cast<double>(stored_elements(p)) / all;
}

Pattern cover(const Pattern& p, uint32_t block_size) {
  Pattern out = without_blocks(p.rows, p.cols, block_size);
  const Divider divide(block_size);
  const uint32_t b = p.block_size;
  ColumnSet columns(out.block_cols());
  for (uint32_t r = 0; r < out.block_rows(); ++r) {
    const uint32_t first_row = r * block_size;
    const uint32_t last_row = first_row + inside(r, block_size, p.rows) - 1;
    for (uint64_t i = p.crow_indices[first_row / b]; i < p.crow_indices[last_row / b + 1]; ++i) {
      const uint32_t first_col = p.col_indices[i] * b;
      const uint32_t last_col = first_col + inside(p.col_indices[i], b, p.cols) - 1;
      for (uint32_t c = divide(first_col); c <= divide(last_col); ++c) columns.insert(r, c);
    }
    columns.move_to(out.col_indices);
    out.crow_indices[r + 1] = out.col_indices.size();
  }
  return out;
}

SparseMatrix cover(const SparseMatrix& matrix, uint32_t block_size) {
  SparseMatrix out{cover(matrix.pattern, block_size), {}};
  const Pattern& p = out.pattern;
  const Divider divide(block_size);
  base::require_memory(
      stored_values(p) * sizeof(float),
      fmt::format("covering a {} x {} matrix with blocks of {}", p.rows, p.cols, block_size));
  out.values.assign(stored_values(p), 0.0f);
  // The position in `out` of each block column of the current block row.
  std::vector<uint64_t> block_at(p.block_cols());
  uint32_t current = std::numeric_limits<uint32_t>::max();
  for_each_element(matrix.pattern, [&](uint32_t row, uint32_t col, uint64_t index) {
    const uint32_t r = divide(row);
    if (r != current) {
      current = r;
      for (uint64_t i = p.crow_indices[r]; i < p.crow_indices[r + 1]; ++i) block_at[p.col_indices[i]] = i;
    }
    const uint32_t c = divide(col);
    const uint64_t row_in_values = block_at[c] * block_size + (row - r * block_size);
    out.values[row_in_values * block_size + (col - c * block_size)] = matrix.values[index];
  });
  return out;
}

SparseMatrix from_dense(MatrixView<const float> dense, uint32_t rows, uint32_t cols) {
  SparseMatrix out{without_blocks(rows, cols, 1), {}};
  for (uint32_t r = 0; r < rows; ++r) {
    for (uint32_t c = 0; c < cols; ++c) {
      const float value = dense(r, c);
      if (value == 0) continue;
      out.pattern.col_indices.push_back(c);
      out.values.push_back(value);
    }
    out.pattern.crow_indices[size_t{r} + 1] = out.pattern.col_indices.size();
  }
  return out;
}

std::vector<float> to_dense(const SparseMatrix& matrix) {
  const Pattern& p = matrix.pattern;
  std::vector<float> dense(size_t{p.rows} * p.cols, 0.0f);
  for_each_element(p, [&](uint32_t row, uint32_t col, uint64_t index) {
    dense[size_t{row} * p.cols + col] = matrix.values[index];
  });
  return dense;
}

std::vector<float> values_at(const Pattern& p, std::span<const float> dense) {
  std::vector<float> values(stored_values(p));
  for_each_element(p, [&](uint32_t row, uint32_t col, uint64_t index) {
    values[index] = dense[size_t{row} * p.cols + col];
  });
  return values;
}

TransposedPattern transpose(const Pattern& p) {
  TransposedPattern out{without_blocks(p.cols, p.rows, p.block_size), std::vector<uint64_t>(p.blocks())};
  Pattern& t = out.pattern;
  t.col_indices.resize(p.blocks());
  for (uint32_t c : p.col_indices) ++t.crow_indices[size_t{c} + 1];
  accumulate(t.crow_indices);
  std::vector<uint64_t> next(t.crow_indices.begin(), t.crow_indices.end() - 1);
  for (uint32_t r = 0; r < p.block_rows(); ++r) {
    for (uint64_t i = p.crow_indices[r]; i < p.crow_indices[r + 1]; ++i) {
      const uint64_t position = next[p.col_indices[i]]++;
      t.col_indices[position] = r;
      out.source[position] = i;
    }
  }
  return out;
}

SparseMatrix transpose(const SparseMatrix& matrix) {
  TransposedPattern transposed = transpose(matrix.pattern);
  const size_t b = matrix.pattern.block_size;
  std::vector<float> values(matrix.values.size());
  for (size_t i = 0; i < transposed.source.size(); ++i) {
    const float* from = matrix.values.data() + transposed.source[i] * b * b;
    float* to = values.data() + i * b * b;
    for (size_t y = 0; y < b; ++y) {
      for (size_t x = 0; x < b; ++x) to[x * b + y] = from[y * b + x];
    }
  }
  return {std::move(transposed.pattern), std::move(values)};
}

SparseMatrix from_coordinates(uint32_t rows, uint32_t cols, const Coordinates& elements) {
  SparseMatrix out{without_blocks(rows, cols, 1), {}};
  validate_coordinates(rows, cols, elements);
  Pattern& p = out.pattern;
  p.col_indices.resize(elements.rows.size());
  out.values.resize(elements.rows.size());
  for (uint32_t r : elements.rows) ++p.crow_indices[size_t{r} + 1];
  accumulate(p.crow_indices);
  std::vector<uint64_t> next(p.crow_indices.begin(), p.crow_indices.end() - 1);
  for (size_t i = 0; i < elements.rows.size(); ++i) {
    const uint64_t position = next[elements.rows[i]]++;
    p.col_indices[position] = elements.cols[i];
    out.values[position] = elements.values[i];
  }
  const auto ascends = [&](uint32_t r) {
    return ascending_below(p.col_indices.data() + p.crow_indices[r],
                           p.col_indices.data() + p.crow_indices[size_t{r} + 1], cols);
  };
  for (uint32_t r = 0; r < rows; ++r) {
    if (ascends(r)) continue;
    // Transposing is a stable sort by row; transposing twice puts every row in order.
    out = transpose(transpose(out));
    break;
  }
  validate(out);
  return out;
}

}  // namespace tessera::sparse
