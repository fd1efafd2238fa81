// Products and gradients of a weight compared with float64.
#pragma once

#include <gtest/gtest.h>
#include <tessera/spmm.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/random.h"
#include "sparse/pattern.h"
#include "support/activations.h"
#include "support/numbers.h"

namespace tessera::test {

/// The weight's matrix, row-major.
inline std::vector<float> dense_of(const Weight& weight) {
  SparseMatrix matrix{weight.pattern(), {}};
  if (weight.is_dense()) {
    matrix.values.resize(weight.non_zeros());
    weight.get_values(matrix.values);
    return matrix.values;
  }
  matrix.values.resize(sparse::stored_values(matrix.pattern));
  weight.get_values(matrix.values);
  return sparse::to_dense(matrix);
}

/// The arguments of a call.
struct ProductCall {
  float alpha = 1.5F;
  float beta = -0.5F;  ///< 0: Y holds NaN before
  uint32_t first = 0;  ///< first element of matrices in their arrays
  uint32_t x_gap = 0;  ///< elements between rows or columns
  uint32_t y_gap = 0;
};

/// Draws options of a product and arguments of a call.
inline void draw_call(base::RandomSequence& random, SpmmOptions& options, ProductCall& call) {
  options.x_layout = static_cast<Layout>(random.below(2));
  options.y_layout = static_cast<Layout>(random.below(2));
  options.activation = kActivations.begin()[random.below(static_cast<uint32_t>(kActivations.size()))];
  options.bias = random.below(2) == 0;
  options.transpose = random.below(2) == 0;
  if (random.below(4) == 0) options.threads = 3, options.force = {{"row_parts", 3}};
  call = {.first = random.below(2), .x_gap = 3 * random.below(2), .y_gap = 5 * random.below(2)};
  if (random.below(2) == 0) call.alpha = 1, call.beta = 0;
}

/// A caller's random matrix.
struct CallersMatrix {
  Layout layout;
  uint32_t first;
  int64_t leading;
  std::vector<float> values;

  CallersMatrix(Layout its_layout, uint32_t rows, uint32_t cols, uint32_t offset, uint32_t gap, uint64_t seed)
      : layout(its_layout),
        first(offset),
        leading((layout == Layout::row_major ? cols : rows) + gap),
        values(random_floats(
            static_cast<uint64_t>(leading) * (layout == Layout::row_major ? rows : cols) + first, seed)) {}
  float* data() { return values.data() + first; }
  double at(int64_t i, int64_t j) const {
    return values[static_cast<size_t>(first +
                                      (layout == Layout::row_major ? i * leading + j : i + j * leading))];
  }
};

/// Expects activation(alpha · W·X + beta · Y + bias), or with Wᵀ, for a product with any options.
inline void expect_product(const Weight& weight, const Spmm& product, uint32_t n, const SpmmOptions& options,
                           uint64_t seed, const ProductCall& call = {}) {
  const uint32_t rows = options.transpose ? weight.cols() : weight.rows();
  const uint32_t depth = options.transpose ? weight.rows() : weight.cols();
  const std::vector<float> w = dense_of(weight), bias = random_floats(rows, seed + 7);
  CallersMatrix x(options.x_layout, depth, n, call.first, call.x_gap, seed + 5);
  CallersMatrix y(options.y_layout, rows, n, call.first, call.y_gap, seed + 6);
  if (call.beta == 0) std::ranges::fill(y.values, NAN);
  const CallersMatrix before = y;
  product({.x = x.data(),
           .x_leading = x.leading,
           .y = y.data(),
           .y_leading = y.leading,
           .alpha = call.alpha,
           .beta = call.beta,
           .bias = options.bias ? bias.data() : nullptr});
  for (uint32_t i = 0; i < rows; ++i)
    for (uint32_t j = 0; j < n; ++j) {
      double sum = 0;
      double magnitude = 0;
      uint32_t length = 0;
      for (uint32_t l = 0; l < depth; ++l) {
        const double value =
            options.transpose ? w[uint64_t{l} * weight.cols() + i] : w[uint64_t{i} * weight.cols() + l];
        const double term = value * x.at(l, j);
        sum += term;
        magnitude += std::abs(term);
        length += value != 0 ? 1 : 0;
      }
      double want = call.alpha * sum + (call.beta == 0 ? 0 : call.beta * before.at(i, j)) +
                    (options.bias ? bias[i] : 0);
      want = activated(options.activation, want);
      ASSERT_NEAR(y.at(i, j), want, (length + 4) * 0x1p-24 * (1.5 * magnitude + 2))
          << "(" << i << ", " << j << ")";
    }
}

/// Row and column of each value of a weight, in their order; blocks may overhang the matrix.
inline std::vector<std::pair<uint32_t, uint32_t>> positions_of(const Weight& weight) {
  std::vector<std::pair<uint32_t, uint32_t>> positions;
  if (weight.is_dense()) {
    for (uint32_t row = 0; row < weight.rows(); ++row)
      for (uint32_t col = 0; col < weight.cols(); ++col) positions.emplace_back(row, col);
    return positions;
  }
  const Pattern pattern = weight.pattern();
  const uint32_t b = pattern.block_size;
  for (uint32_t row = 0; row < pattern.block_rows(); ++row)
    for (uint64_t i = pattern.crow_indices[row]; i < pattern.crow_indices[row + 1]; ++i)
      for (uint32_t e = 0; e < b * b; ++e)
        positions.emplace_back(row * b + e / b, pattern.col_indices[i] * b + e % b);
  return positions;
}

/// Expects alpha · dY·Xᵀ + beta · dW where a weight has elements, and 0 at all other places.
inline void expect_gradient(const Weight& weight, const Sddmm& gradient, uint32_t n,
                            const SddmmOptions& options, float alpha, float beta) {
  CallersMatrix dy(options.dy_layout, weight.rows(), n, 1, 3, 1),
      x(options.x_layout, weight.cols(), n, 0, 2, 2);
  const std::vector<std::pair<uint32_t, uint32_t>> positions = positions_of(weight);
  std::vector<float> before = random_floats(positions.size(), 3), dw(weight.packed_size()),
                     got(before.size());
  weight.pack(before, dw);
  if (beta == 0 && weight.is_dense()) std::ranges::fill(dw, NAN);
  gradient({.dy = dy.data(),
            .dy_leading = dy.leading,
            .x = x.data(),
            .x_leading = x.leading,
            .dw = dw.data(),
            .alpha = alpha,
            .beta = beta});
  weight.unpack(dw, got);
  for (size_t i = 0; i < positions.size(); ++i) {
    const auto [row, col] = positions[i];
    if (row >= weight.rows() || col >= weight.cols()) continue;
    double sum = 0, magnitude = 0;
    for (uint32_t j = 0; j < n; ++j) {
      sum += dy.at(row, j) * x.at(col, j);
      magnitude += std::abs(dy.at(row, j) * x.at(col, j));
    }
    const double kept = beta == 0 ? 0 : double{beta} * before[i];
    const double tolerance = (n + 8) * 0x1p-24 * (std::abs(alpha) * magnitude + std::abs(kept));
    ASSERT_NEAR(got[i], alpha * sum + kept, tolerance) << row << ", " << col;
  }
  std::vector<float> again(dw.size());
  weight.pack(got, again);
  EXPECT_EQ(again, dw) << "a place that holds no stored element is not 0";
}

}  // namespace tessera::test
