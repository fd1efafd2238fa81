// Circulant layers by their definition.
#include <vector>

#include "kernels/common/element.h"
#include "kernels/common/lines.h"
#include "kernels/host/circulant/layout.h"

namespace tessera::kernels {
namespace {

using program::FieldView;

/// [batch × features].
FieldView by_sample(const program::Vertex& v, const FieldView& field) {
  return v.params[circulant_param::transposed] != 0 ? transposed(field) : field;
}

/// The element of c that multiplies feature j in feature i of the result.
int64_t tap_of(const CirculantShape& shape, uint32_t i, uint32_t j) {
  const int64_t difference = int64_t{i} - j;
  if (shape.toeplitz) return difference + shape.in - 1;
  return difference < 0 ? difference + shape.taps : difference;
}

}  // namespace

void circulant_forward_reference(const program::Vertex& v) {
  using namespace circulant_forward_field;
  const FieldView in = by_sample(v, v.fields[x]), out = by_sample(v, v.fields[y]);
  const CirculantShape shape = shape_of(v, v.fields[x], v.fields[y], v.fields[c]);
  for (uint32_t sample = 0; sample < out.rows; ++sample)
    for (uint32_t i = 0; i < out.cols; ++i) {
      double sum = 0;
      for (uint32_t j = 0; j < in.cols; ++j)
        sum += number_at(v.fields[c], 0, tap_of(shape, i, j)) * number_at(in, sample, j);
      set_number(out, sample, i, sum);
    }
}

void circulant_gradients_reference(const program::Vertex& v) {
  using namespace circulant_gradients_field;
  const FieldView in = by_sample(v, v.fields[x]), gradient = by_sample(v, v.fields[dy]);
  const FieldView out = by_sample(v, v.fields[dx]);
  const CirculantShape shape =
      shape_of(v, out.empty() ? v.fields[x] : v.fields[dx], v.fields[dy], v.fields[c]);
  for (uint32_t sample = 0; sample < out.rows; ++sample)
    for (uint32_t j = 0; j < out.cols; ++j) {
      double sum = 0;
      for (uint32_t i = 0; i < gradient.cols; ++i)
        sum += number_at(v.fields[c], 0, tap_of(shape, i, j)) * number_at(gradient, sample, i);
      set_number(out, sample, j, sum);
    }
  if (v.fields[dc].empty()) return;
  std::vector<double> sums(v.fields[dc].cols);
  for (uint32_t sample = 0; sample < in.rows; ++sample)
    for (uint32_t j = 0; j < in.cols; ++j)
      for (uint32_t i = 0; i < gradient.cols; ++i)
        sums[static_cast<size_t>(tap_of(shape, i, j))] +=
            number_at(gradient, sample, i) * number_at(in, sample, j);
  for (uint32_t tap = 0; tap < sums.size(); ++tap) set_number(v.fields[dc], 0, tap, sums[tap]);
}

}  // namespace tessera::kernels
