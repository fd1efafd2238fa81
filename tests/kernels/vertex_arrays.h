// Arrays of a vertex that a test makes itself.
#pragma once

#include <tessera/types.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "program/codelet.h"
#include "support/random_choices.h"

namespace tessera::test {

/// A row-major matrix of FP32.
struct Matrix {
  uint32_t rows = 0, cols = 0;
  std::vector<float> values;

  Matrix(uint32_t row_count, uint32_t col_count, float value = 0)
      : rows(row_count), cols(col_count), values(size_t{rows} * cols, value) {}

  float& operator()(uint32_t row, uint32_t col) { return values[size_t{row} * cols + col]; }
  float operator()(uint32_t row, uint32_t col) const { return values[size_t{row} * cols + col]; }
  Matrix& fill(Random& random) {
    for (float& value : values) value = random.value();
    return *this;
  }
  /// Rows [begin, end) as a field.
  program::FieldView view(uint32_t begin, uint32_t end) {
    return {reinterpret_cast<std::byte*>(values.data() + size_t{begin} * cols),
            Type::f32,
            end - begin,
            cols,
            cols,
            1};
  }
  program::FieldView view() { return view(0, rows); }
};

inline Matrix transposed(const Matrix& of) {
  Matrix result(of.cols, of.rows);
  for (uint32_t r = 0; r < of.rows; ++r)
    for (uint32_t c = 0; c < of.cols; ++c) result(c, r) = of(r, c);
  return result;
}

/// Scratch, filled with NaN.
class Scratch {
 public:
  explicit Scratch(size_t floats) : lines_((floats + 15) / 16), floats_(static_cast<uint32_t>(floats)) {}
  float* data() { return reinterpret_cast<float*>(lines_.data()); }
  program::FieldView view() {
    return {reinterpret_cast<std::byte*>(lines_.data()), Type::f32, 1, floats_, floats_, 1};
  }

 private:
  struct alignas(64) Line {
    float values[16];
    Line() { std::fill_n(values, 16, std::numeric_limits<float>::quiet_NaN()); }
  };
  std::vector<Line> lines_;
  uint32_t floats_;
};

/// The results, of `out` features, of a vertex with the fields x, parameters, y and scratch; its first
/// parameter says whether batches are stored as their transposes.
inline Matrix run_forward(program::RunVertex run, Matrix& x,
                          const std::vector<program::FieldView>& parameters, uint32_t out,
                          size_t scratch_floats, std::vector<int64_t> params) {
  const bool is_transposed = params[0] != 0;
  Matrix y(x.rows, out, NAN), x_transposed = transposed(x), y_transposed = transposed(y);
  Scratch scratch(scratch_floats);
  std::vector<program::FieldView> fields = {is_transposed ? x_transposed.view() : x.view()};
  fields.insert(fields.end(), parameters.begin(), parameters.end());
  fields.insert(fields.end(), {is_transposed ? y_transposed.view() : y.view(), scratch.view()});
  run({fields, params});
  return is_transposed ? transposed(y_transposed) : y;
}

}  // namespace tessera::test
