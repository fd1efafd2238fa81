#include "spmm/reference.h"

#include <algorithm>
#include <cmath>

namespace tessera::bench {
namespace {

constexpr uint32_t kRows = 16;
constexpr uint32_t kColumns = 8;

/// `count` indices spread over 0 … size - 1, including both ends.
std::vector<uint32_t> sample(uint32_t size, uint32_t count) {
  std::vector<uint32_t> indices;
  for (uint32_t i = 0; i < std::min(size, count); ++i)
    indices.push_back(
        static_cast<uint32_t>(uint64_t{size - 1} * i / std::max(std::min(size, count) - 1, 1U)));
  return indices;
}

/// Calls visit(row, column, position of the value) for each stored element inside the matrix.
template <class Visit>
void for_each_stored(const Pattern& pattern, const Visit& visit) {
  const uint32_t b = pattern.block_size;
  for (uint32_t r = 0; r < pattern.block_rows(); ++r)
    for (uint64_t block = pattern.crow_indices[r]; block < pattern.crow_indices[r + 1]; ++block)
      for (uint32_t e = 0; e < b * b; ++e) {
        const uint32_t row = r * b + e / b, column = pattern.col_indices[block] * b + e % b;
        if (row < pattern.rows && column < pattern.cols) visit(row, column, block * b * b + e);
      }
}

}  // namespace

void Reference::Element::add(double term) {
  value += term;
  magnitude += std::abs(term);
}

Reference::Reference(const SparseMatrix& weights, const Case& work, std::span<const float> x,
                     std::span<const float> dy) {
  const bool by_rows = work.layout == Layout::row_major;
  const auto at = [&](uint32_t row, uint32_t column, uint32_t rows) {
    return by_rows ? size_t{row} * work.n + column : size_t{column} * rows + row;
  };
  const std::vector<uint32_t> rows = sample(work.m, kRows), columns = sample(work.k, kRows),
                              ns = sample(work.n, kColumns);
  for (uint32_t row : rows)
    for (uint32_t j : ns) y_.push_back({at(row, j, work.m)});
  for (uint32_t column : columns)
    for (uint32_t j : ns) dx_.push_back({at(column, j, work.k)});
  const bool with_gradient = work.task == Task::sddmm || work.task == Task::triple;
  for_each_stored(weights.pattern, [&](uint32_t row, uint32_t column, uint64_t position) {
    const double w = weights.values[position];
    const auto r = std::lower_bound(rows.begin(), rows.end(), row);
    const auto c = std::lower_bound(columns.begin(), columns.end(), column);
    const bool in_row = r != rows.end() && *r == row, in_column = c != columns.end() && *c == column;
    for (size_t j = 0; j < ns.size() && in_row; ++j)
      y_[(r - rows.begin()) * ns.size() + j].add(w * x[at(column, ns[j], work.k)]);
    for (size_t j = 0; j < ns.size() && in_column; ++j)
      dx_[(c - columns.begin()) * ns.size() + j].add(w * dy[at(row, ns[j], work.m)]);
    if (!with_gradient || !in_row || row % 3 != 0) return;
    gradient_.push_back({position});
    for (uint32_t j = 0; j < work.n; ++j)
      gradient_.back().add(double{dy[at(row, j, work.m)]} * x[at(column, j, work.k)]);
  });
}

double Reference::largest_error(Task task, std::span<const float> y, std::span<const float> dx,
                                std::span<const float> gradient) const {
  switch (task) {
    case Task::forward: return largest_error(y_, y);
    case Task::input_gradient: return largest_error(dx_, dx);
    case Task::sddmm: return largest_error(gradient_, gradient);
    case Task::triple:
      return std::max({largest_error(y_, y), largest_error(dx_, dx), largest_error(gradient_, gradient)});
  }
  return INFINITY;
}

double Reference::largest_error(const Elements& elements, std::span<const float> results) {
  double largest = 0;
  for (const Element& element : elements) {
    const double error = std::abs(static_cast<double>(results[element.index]) - element.value);
    if (std::isnan(error)) return INFINITY;
    if (error > 0) largest = std::max(largest, error / element.magnitude);
  }
  return largest;
}

}  // namespace tessera::bench
