#include "kernels/tile/kronecker/butterfly.h"

#include <array>

#include "kernels/common/element.h"
#include "kernels/tile/kronecker/codelet.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Vertex;

float value_of(const FieldView& field, uint32_t row, uint32_t col) {
  return static_cast<float>(number_at(field, row, col));
}

/// The factors of a pass in order of application.
struct Pass {
  uint32_t levels;
  bool decreasing;
  uint32_t features;

  explicit Pass(const Vertex& v)
      : levels(static_cast<uint32_t>(v.params[butterfly_pass_param::levels])),
        decreasing(v.params[butterfly_pass_param::decreasing] != 0),
        features(1U << levels) {}

  uint32_t stride(uint32_t level) const { return 1U << (decreasing ? levels - 1 - level : level); }
};

/// Calls visit(row of the first feature, row of the second, column of the 2 × 2 matrix) for each pair that a
/// level combines.
template <class Visit>
void each_pair(const Pass& pass, uint32_t level, uint32_t groups, const Visit& visit) {
  const uint32_t stride = pass.stride(level), pairs = pass.features / 2;
  for (uint32_t g = 0; g < groups; ++g)
    for (uint32_t p = 0; p < pairs; ++p) {
      const uint32_t low = p % stride, row = g * pass.features + 2 * (p - low) + low;
      visit(row, row + stride, ((g * pass.levels + level) * pairs + p) * 4);
    }
}

std::array<float, 4> matrix_at(const FieldView& w, uint32_t col) {
  return {value_of(w, 0, col), value_of(w, 0, col + 1), value_of(w, 0, col + 2), value_of(w, 0, col + 3)};
}

/// Rows [first, first + rows) of a field.
FieldView rows_of(const FieldView& field, uint32_t first, uint32_t rows) {
  FieldView part = field;
  part.data = address_of(field, first, 0);
  part.rows = rows;
  return part;
}

/// to = the level's factor · from, which may be one.
void apply_level(const Pass& pass, uint32_t level, const FieldView& w, const FieldView& from,
                 const FieldView& to) {
  each_pair(pass, level, from.rows / pass.features, [&](uint32_t first, uint32_t second, uint32_t col) {
    const auto [a, b, c, d] = matrix_at(w, col);
    for (uint32_t j = 0; j < to.cols; ++j) {
      const float x = value_of(from, first, j), z = value_of(from, second, j);
      set_number(to, first, j, a * x + b * z);
      set_number(to, second, j, c * x + d * z);
    }
  });
}

/// The gradients of a level, from its input `x` and dy, which becomes that of its input.
void differentiate_level(const Pass& pass, uint32_t level, const FieldView& w, const FieldView& x,
                         const FieldView& dy, const FieldView& dx, const FieldView& dw) {
  each_pair(pass, level, x.rows / pass.features, [&](uint32_t first, uint32_t second, uint32_t col) {
    const auto [a, b, c, d] = matrix_at(w, col);
    std::array<float, 4> sums{};
    for (uint32_t j = 0; j < x.cols; ++j) {
      const float x0 = value_of(x, first, j), x1 = value_of(x, second, j);
      const float y0 = value_of(dy, first, j), y1 = value_of(dy, second, j);
      sums[0] += y0 * x0;
      sums[1] += y0 * x1;
      sums[2] += y1 * x0;
      sums[3] += y1 * x1;
      set_number(dx, first, j, a * y0 + c * y1);
      set_number(dx, second, j, b * y0 + d * y1);
    }
    for (uint32_t i = 0; i < 4; ++i) set_number(dw, 0, col + i, sums[i]);
  });
}

}  // namespace

void butterfly_pass_reference(const Vertex& v) {
  using namespace kronecker_product_field;
  const Pass pass(v);
  for (uint32_t level = 0; level < pass.levels; ++level)
    apply_level(pass, level, v.fields[w], level == 0 ? v.fields[x] : v.fields[y], v.fields[y]);
}

void butterfly_pass_gradients_reference(const Vertex& v) {
  using namespace butterfly_pass_gradients_field;
  const Pass pass(v);
  const FieldView& in = v.fields[x];
  const auto input_of = [&](uint32_t level) {
    return level == 0 ? in : rows_of(v.fields[levels_of_x], (level - 1) * in.rows, in.rows);
  };
  for (uint32_t level = 0; level + 1 < pass.levels; ++level)
    apply_level(pass, level, v.fields[w], input_of(level), input_of(level + 1));
  for (uint32_t level = pass.levels; level-- > 0;)
    differentiate_level(pass, level, v.fields[w], input_of(level),
                        level + 1 == pass.levels ? v.fields[dy] : v.fields[dx], v.fields[dx], v.fields[dw]);
}

}  // namespace tessera::kernels
