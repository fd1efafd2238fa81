#include "spmm/reference.h"

#include <algorithm>
#include <cmath>

namespace tessera::bench {
namespace {

constexpr uint32_t kRows = 16;
constexpr uint32_t kColumns = 8;

/// `count` indices spread over 0 … size - 1, both ends included.
std::vector<uint32_t> sample(uint32_t size, uint32_t count) {
  std::vector<uint32_t> indices;
  for (uint32_t i = 0; i < std::min(size, count); ++i)
    indices.push_back(
        static_cast<uint32_t>(uint64_t{size - 1} * i / std::max(std::min(size, count) - 1, 1U)));
  return indices;
}

}  // namespace

Reference::Reference(const SparseMatrix& weights, const Case& work, const std::vector<float>& x) {
  const Pattern& pattern = weights.pattern;
  const uint32_t b = pattern.block_size;
  const bool by_rows = work.layout == Layout::row_major;
  for (const uint32_t row : sample(work.m, kRows)) {
    for (const uint32_t column : sample(work.n, kColumns)) {
      Element element{by_rows ? size_t{row} * work.n + column : size_t{column} * work.m + row, 0,
                      0};
      for (uint64_t block = pattern.row_begin[row / b]; block < pattern.row_begin[row / b + 1];
           ++block) {
        const uint32_t first = pattern.columns[block] * b;
        for (uint32_t j = 0; j < b && first + j < work.k; ++j) {
          const size_t at =
              by_rows ? size_t{first + j} * work.n + column : size_t{column} * work.k + first + j;
          const double product =
              static_cast<double>(weights.values[(block * b + row % b) * b + j]) * x[at];
          element.value += product;
          element.magnitude += std::abs(product);
        }
      }
      elements_.push_back(element);
    }
  }
}

double Reference::largest_error(const std::vector<float>& y) const {
  double largest = 0;
  for (const Element& element : elements_) {
    const double error = std::abs(static_cast<double>(y[element.index]) - element.value);
    if (std::isnan(error)) return INFINITY;
    if (error > 0) largest = std::max(largest, error / element.magnitude);
  }
  return largest;
}

}  // namespace tessera::bench
