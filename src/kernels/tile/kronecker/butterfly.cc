// Passes of butterfly factors in plain loops.
#include <array>

#include "kernels/common/element.h"
#include "kernels/tile/kronecker/codelet.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Vertex;

/// The factors of a pass in order of application.
struct MergedFactors {
  uint32_t levels;
  bool decreasing;
  uint32_t features;

  explicit MergedFactors(const Vertex& v)
      : levels(static_cast<uint32_t>(v.params[butterfly_pass_param::levels])),
        decreasing(v.params[butterfly_pass_param::decreasing] != 0),
        features(1U << levels) {}

  uint32_t stride(uint32_t level) const { return 1U << (decreasing ? levels - 1 - level : level); }
};

/// A pair's matrix between its numbers: 2 × 2 of features with one number each; of complex features 4 × 4,
/// each weight as [re, −im; im, re].
template <uint32_t width>
struct PairMatrix {
  static constexpr uint32_t kSize = 2 * width;
  static constexpr uint32_t kWeights = 4 * width;
  std::array<std::array<float, kSize>, kSize> at{};

  PairMatrix() = default;
  PairMatrix(const FieldView& w, uint32_t col) {
    for (uint32_t r = 0; r < 2; ++r)
      for (uint32_t q = 0; q < 2; ++q, col += width) {
        const float re = f32_at(w, 0, col);
        at[r * width][q * width] = re;
        if constexpr (width == 2) {
          const float im = f32_at(w, 0, col + 1);
          at[2 * r + 1][2 * q + 1] = re;
          at[2 * r][2 * q + 1] = -im;
          at[2 * r + 1][2 * q] = im;
        }
      }
  }

  /// Stores the gradients of the weights from the gradients of the matrices' elements.
  void store_gradients(const FieldView& dw, uint32_t col) const {
    for (uint32_t r = 0; r < 2; ++r)
      for (uint32_t q = 0; q < 2; ++q, col += width)
        if constexpr (width == 1) {
          set_number(dw, 0, col, at[r][q]);
        } else {
          set_number(dw, 0, col, at[2 * r][2 * q] + at[2 * r + 1][2 * q + 1]);
          set_number(dw, 0, col + 1, at[2 * r + 1][2 * q] - at[2 * r][2 * q + 1]);
        }
  }
};

/// Calls visit(rows of the numbers, first column of the matrix) for each pair that a level combines.
template <uint32_t width, class Visit>
void each_pair(const MergedFactors& pass, uint32_t level, uint32_t groups, const Visit& visit) {
  const uint32_t stride = pass.stride(level), pairs = pass.features / 2;
  std::array<uint32_t, 2 * width> rows;
  for (uint32_t g = 0; g < groups; ++g)
    for (uint32_t p = 0; p < pairs; ++p) {
      const uint32_t low = p % stride, first = g * pass.features + 2 * (p - low) + low;
      for (uint32_t i = 0; i < rows.size(); ++i) rows[i] = (first + i / width * stride) * width + i % width;
      visit(rows, ((g * pass.levels + level) * pairs + p) * PairMatrix<width>::kWeights);
    }
}

/// Rows [first, first + rows) of a field.
FieldView rows_of(const FieldView& field, uint32_t first, uint32_t rows) {
  FieldView part = field;
  part.data = address_of(field, first, 0);
  part.rows = rows;
  return part;
}

/// to = the level's factor · from, which may be one.
template <uint32_t width>
void apply_level(const MergedFactors& pass, uint32_t level, const FieldView& w, const FieldView& from,
                 const FieldView& to) {
  constexpr uint32_t kSize = PairMatrix<width>::kSize;
  each_pair<width>(pass, level, from.rows / width / pass.features, [&](const auto& rows, uint32_t col) {
    const PairMatrix<width> matrix(w, col);
    std::array<float, kSize> x;
    for (uint32_t j = 0; j < to.cols; ++j) {
      for (uint32_t q = 0; q < kSize; ++q) x[q] = f32_at(from, rows[q], j);
      for (uint32_t r = 0; r < kSize; ++r) {
        float sum = matrix.at[r][0] * x[0];
        for (uint32_t q = 1; q < kSize; ++q) sum += matrix.at[r][q] * x[q];
        set_number(to, rows[r], j, sum);
      }
    }
  });
}

/// The gradients of a level, from its input `x` and dy, which becomes that of its input.
template <uint32_t width>
void differentiate_level(const MergedFactors& pass, uint32_t level, const FieldView& w, const FieldView& x,
                         const FieldView& dy, const FieldView& dx, const FieldView& dw) {
  constexpr uint32_t kSize = PairMatrix<width>::kSize;
  each_pair<width>(pass, level, x.rows / width / pass.features, [&](const auto& rows, uint32_t col) {
    const PairMatrix<width> matrix(w, col);
    PairMatrix<width> sums;
    std::array<float, kSize> dys;
    for (uint32_t j = 0; j < x.cols; ++j) {
      for (uint32_t r = 0; r < kSize; ++r) dys[r] = f32_at(dy, rows[r], j);
      for (uint32_t q = 0; q < kSize; ++q) {
        const float of_x = f32_at(x, rows[q], j);
        float sum = 0;
        for (uint32_t r = 0; r < kSize; ++r) {
          sums.at[r][q] += dys[r] * of_x;
          sum = r == 0 ? matrix.at[r][q] * dys[r] : sum + matrix.at[r][q] * dys[r];
        }
        set_number(dx, rows[q], j, sum);
      }
    }
    sums.store_gradients(dw, col);
  });
}

template <uint32_t width>
void apply_pass(const Vertex& v) {
  using namespace kronecker_product_field;
  const MergedFactors pass(v);
  for (uint32_t level = 0; level < pass.levels; ++level)
    apply_level<width>(pass, level, v.fields[w], level == 0 ? v.fields[x] : v.fields[y], v.fields[y]);
}

template <uint32_t width>
void differentiate_pass(const Vertex& v) {
  using namespace butterfly_pass_gradients_field;
  const MergedFactors pass(v);
  const FieldView& in = v.fields[x];
  const auto input_of = [&](uint32_t level) {
    return level == 0 ? in : rows_of(v.fields[levels_of_x], (level - 1) * in.rows, in.rows);
  };
  for (uint32_t level = 0; level + 1 < pass.levels; ++level)
    apply_level<width>(pass, level, v.fields[w], input_of(level), input_of(level + 1));
  for (uint32_t level = pass.levels; level-- > 0;)
    differentiate_level<width>(pass, level, v.fields[w], input_of(level),
                               level + 1 == pass.levels ? v.fields[dy] : v.fields[dx], v.fields[dx],
                               v.fields[dw]);
}

bool is_complex(const Vertex& v) { return v.params[butterfly_pass_param::width] == 2; }

}  // namespace

void butterfly_pass_reference(const Vertex& v) { is_complex(v) ? apply_pass<2>(v) : apply_pass<1>(v); }

void butterfly_pass_gradients_reference(const Vertex& v) {
  is_complex(v) ? differentiate_pass<2>(v) : differentiate_pass<1>(v);
}

}  // namespace tessera::kernels
