// Operands of sparse products with margins around them, and expected results.
#pragma once

#include <gtest/gtest.h>
#include <tessera/sparse.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kernels/common/epilogue.h"
#include "kernels/common/window.h"
#include "support/activations.h"
#include "support/random_choices.h"

namespace tessera::test {

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// Scratch, filled with NaN.
class Scratch {
 public:
  explicit Scratch(size_t floats) : lines_((floats + 15) / 16) {}
  float* data() { return reinterpret_cast<float*>(lines_.data()); }

 private:
  struct alignas(64) Line {
    float values[16];
    Line() { std::fill_n(values, 16, kNaN); }
  };
  std::vector<Line> lines_;
};

/// A window of any taps, strides and zeros; every other one has 3 × 3 taps, and keeps the images' size.
inline kernels::Window random_window(Random& random) {
  kernels::Window w;
  if (random.coin()) {
    w.height = w.out_height = random.one_of({1U, 5U, 7U, 8U, 16U});
    w.width = w.out_width = random.one_of({4U, 7U, 8U, 14U, 16U, 32U});
    w.kernel_height = w.kernel_width = 3, w.top = w.left = 1;
    return w;
  }
  w.height = 1 + random.below(24), w.width = 1 + random.below(44);
  w.out_height = 1 + random.below(20), w.out_width = random.one_of({1 + random.below(40), 8U, 16U, 32U});
  w.kernel_height = 1 + random.below(4), w.kernel_width = 1 + random.below(4);
  w.stride_down = random.one_of({1U, 1U, 2U, 3U}), w.stride_across = random.one_of({1U, 1U, 2U, 3U});
  w.dilation_down = random.one_of({1U, 1U, 2U}), w.dilation_across = random.one_of({1U, 1U, 2U});
  w.top = random.below(4), w.left = random.below(4);
  return w;
}

/// Images under a window; X has `n` of its columns.
struct Images {
  kernels::Seen seen;
  uint32_t n;

  explicit Images(Random& random) {
    const kernels::Window w = random_window(random);
    const uint32_t count = 1 + random.below(9);
    seen = {w, 1 + random.below(9), count * w.positions(), 0};
    n = count * w.out_positions();
    if (random.below(4) != 0) return;
    seen.first = random.below(n);
    n = 1 + random.below(n - seen.first);
  }
};

/// The layout of a matrix in an array: by columns or by rows, with a gap after each, and the first element at
/// an offset from a cache line.
struct DenseLayout {
  bool by_columns = false;
  uint32_t offset = 1;
  uint32_t gap = 3;
  uint32_t behind = 3;  ///< elements after the last gap
};

/// A matrix with a margin of one number around it.
class Dense {
 public:
  Dense(uint32_t rows, uint32_t cols, const DenseLayout& layout, float margin)
      : rows_(rows),
        cols_(cols),
        margin_(margin),
        data_(kLine + layout.offset +
                  size_t{layout.by_columns ? cols : rows} * ((layout.by_columns ? rows : cols) + layout.gap) +
                  layout.behind,
              margin) {
    const size_t past_line = reinterpret_cast<uintptr_t>(data_.data()) / sizeof(float) % kLine;
    float* first = data_.data() + (kLine - past_line) + layout.offset;
    const int64_t leading = (layout.by_columns ? rows : cols) + layout.gap;
    view_ = layout.by_columns ? column_major(first, leading) : row_major(first, leading);
  }
  Dense(const Dense&) = delete;

  template <class Value>
  Dense& fill(const Value& value) {
    for (uint32_t i = 0; i < rows_; ++i)
      for (uint32_t j = 0; j < cols_; ++j) view_(i, j) = value(i, j);
    return *this;
  }
  float& operator()(int64_t i, int64_t j) const { return view_(i, j); }
  MatrixView<float> view() const { return view_; }
  MatrixView<const float> const_view() const { return {view_.data, view_.row_stride, view_.col_stride}; }

  /// Expects the margin to be untouched. Overwrites the elements.
  void expect_only_margin_left(const std::string& what) {
    fill([&](uint32_t, uint32_t) { return margin_; });
    for (const float outside : data_) ASSERT_EQ(outside, margin_) << what << ": wrote outside the matrix";
  }

 private:
  static constexpr size_t kLine = 16;

  uint32_t rows_, cols_;
  float margin_;
  std::vector<float> data_;
  MatrixView<float> view_;
};

/// A pattern whose block rows have different densities.
template <class Density>
Pattern random_pattern(uint32_t rows, uint32_t cols, uint32_t block_size, Random& random,
                       const Density& density_of_row) {
  Pattern pattern{rows, cols, block_size, {0}, {}};
  for (uint32_t row = 0; row < pattern.block_rows(); ++row) {
    const double density = density_of_row();
    for (uint32_t col = 0; col < pattern.block_cols(); ++col)
      if (random.unit() < density) pattern.col_indices.push_back(col);
    pattern.crow_indices.push_back(pattern.col_indices.size());
  }
  return pattern;
}

/// A sum of products in float64.
struct ExactSum {
  double value = 0;
  double magnitude = 0;  ///< sum of the magnitudes of its terms
  uint64_t terms = 0;

  void add(double a, double b) {
    value += a * b;
    magnitude += std::abs(a * b);
    ++terms;
  }
  /// Half a unit in the last place per term, and a few for the epilogue.
  double tolerance(double scale, double offset) const {
    return static_cast<double>(terms + 8) * epsilon_of(Type::f32) / 2 *
           (std::abs(scale) * magnitude + std::abs(offset));
  }
};

inline double finished(const kernels::Epilogue& e, double sum, double y, uint32_t row) {
  double value = e.alpha * sum;
  if (e.beta != 0) value += e.beta * y;
  if (e.bias != nullptr) value += e.bias[row];
  return activated(e.activation, value);
}

}  // namespace tessera::test
