// The dense products in plain loops.
#include "kernels/common/activation.h"
#include "kernels/common/element.h"
#include "kernels/host/dense/codelet.h"

namespace tessera::kernels {
namespace {

using program::FieldView;

float value_at(const FieldView& field, uint32_t row, uint32_t col) {
  return static_cast<float>(number_at(field, row, col));
}

/// Element (row, col) of a matrix in panels.
float panel_value(const FieldView& panels, uint32_t row, uint32_t col) {
  return value_at(panels, row / kPanelRows, col * kPanelRows + row % kPanelRows);
}

void weight_gradient(const program::Vertex& v, bool adds) {
  using namespace panel_weight_gradient_field;
  const FieldView &gradient = v.fields[dy], &in = v.fields[x], &out = v.fields[dw];
  for (uint32_t i = 0; i < out.rows * kPanelRows; ++i)
    for (uint32_t c = 0; c < in.cols; ++c) {
      const uint32_t panel = i / kPanelRows, at = c * kPanelRows + i % kPanelRows;
      float sum = 0;
      if (i < gradient.cols) {
        for (uint32_t j = 0; j < in.rows; ++j) sum += value_at(gradient, j, i) * value_at(in, j, c);
        if (adds) sum += value_at(out, panel, at);
      }
      set_number(out, panel, at, sum);
    }
}

}  // namespace

void panel_forward_reference(const program::Vertex& v) {
  using namespace panel_forward_field;
  const FieldView &in = v.fields[x], &weight = v.fields[w], &out = v.fields[y];
  const auto activation = static_cast<Activation>(v.params[panel_forward_param::activation]);
  for (uint32_t j = 0; j < out.rows; ++j)
    for (uint32_t i = 0; i < out.cols; ++i) {
      float sum = 0;
      for (uint32_t c = 0; c < in.cols; ++c) sum += value_at(in, j, c) * panel_value(weight, i, c);
      if (!v.fields[bias].empty()) sum += value_at(v.fields[bias], 0, i);
      set_number(out, j, i, activate(activation, sum));
    }
}

void panel_input_gradient_reference(const program::Vertex& v) {
  using namespace panel_input_gradient_field;
  const FieldView &in = v.fields[dy], &weight = v.fields[w], &out = v.fields[dx];
  for (uint32_t j = 0; j < out.rows; ++j)
    for (uint32_t c = 0; c < out.cols; ++c) {
      float sum = 0;
      for (uint32_t i = 0; i < in.cols; ++i) sum += value_at(in, j, i) * panel_value(weight, i, c);
      const bool is_masked = !v.fields[relu].empty() && value_at(v.fields[relu], j, c) <= 0;
      set_number(out, j, c, is_masked ? 0 : sum);
    }
}

void panel_weight_gradient_reference(const program::Vertex& v) { weight_gradient(v, false); }
void panel_weight_gradient_add_reference(const program::Vertex& v) { weight_gradient(v, true); }

}  // namespace tessera::kernels
