// The dense products in plain loops.
#include "kernels/common/activation.h"
#include "kernels/common/element.h"
#include "kernels/host/dense/codelet.h"
#include "kernels/host/dense/layout.h"

namespace tessera::kernels {
namespace {

using program::FieldView;

/// Element (row, col) of a matrix in panels.
float panel_value(const FieldView& panels, uint32_t row, uint32_t col) {
  return f32_at(panels, row / kPanelRows, col * kPanelRows + row % kPanelRows);
}

/// What a window sees at a position: element `col`.
float seen_at(const FieldView& in, const FieldView& window, uint32_t position, uint32_t col) {
  const Window w = window_of(window);
  const uint32_t tap = col / in.cols;
  const int64_t y = w.row(position / w.out_width % w.out_height, tap / w.kernel_width);
  const int64_t x = w.col(position % w.out_width, tap % w.kernel_width);
  if (!w.has_row(y) || !w.has_col(x)) return 0;
  const auto place = (int64_t{position / w.out_positions()} * w.height + y) * w.width + x;
  return f32_at(in, static_cast<uint32_t>(place), col % in.cols);
}

/// Element (row, col) of X of the forward product, and of the weight gradient.
float x_at(const program::Vertex& v, uint32_t row, uint32_t col) {
  using namespace panel_forward_field;
  const FieldView &in = v.fields[x], &seen = v.fields[window];
  if (seen.empty()) return f32_at(in, row, col);
  return seen_at(in, seen, row + static_cast<uint32_t>(v.params[panel_forward_param::first_row]), col);
}
float gradient_x_at(const program::Vertex& v, uint32_t row, uint32_t col) {
  using namespace panel_weight_gradient_field;
  const FieldView &in = v.fields[x], &seen = v.fields[window];
  if (seen.empty()) return f32_at(in, row, col);
  return seen_at(in, seen, row,
                 col + static_cast<uint32_t>(v.params[panel_weight_gradient_param::first_col]));
}

/// alpha · sum, and beta · the previous element.
float scaled(const DenseScalars& s, float sum, const FieldView& result, uint32_t row, uint32_t col,
             float bias = 0) {
  const float product = s.alpha * sum + bias;
  return s.beta == 0 ? product : product + s.beta * f32_at(result, row, col);
}

float bias_of(const FieldView& bias, uint32_t feature) { return bias.empty() ? 0 : f32_at(bias, 0, feature); }

void weight_gradient(const program::Vertex& v, bool adds) {
  using namespace panel_weight_gradient_field;
  const DenseScalars of(v.fields[scalars], adds);
  const FieldView &gradient = v.fields[dy], &out = v.fields[dw];
  const DenseGradientFactor factor(v);
  for (uint32_t i = 0; i < out.rows * kPanelRows; ++i)
    for (uint32_t c = 0; c < out.cols / kPanelRows; ++c) {
      const uint32_t panel = i / kPanelRows, at = c * kPanelRows + i % kPanelRows;
      float sum = 0;
      if (gradient.empty() || i < gradient.cols) {
        for (uint32_t j = 0; j < factor.rows; ++j) sum += f32_at(gradient, j, i) * gradient_x_at(v, j, c);
        sum = scaled(of, sum, out, panel, at);
      }
      set_number(out, panel, at, sum);
    }
}

void forward(const program::Vertex& v, bool adds) {
  using namespace panel_forward_field;
  const FieldView &weight = v.fields[w], &out = v.fields[y];
  const auto activation = static_cast<Activation>(v.params[panel_forward_param::activation]);
  const uint32_t terms = panel_forward_terms(v);
  const DenseScalars of(v.fields[scalars], adds);
  for (uint32_t j = 0; j < out.rows; ++j)
    for (uint32_t i = 0; i < out.cols; ++i) {
      float sum = 0;
      for (uint32_t c = 0; c < terms; ++c) sum += x_at(v, j, c) * panel_value(weight, i, c);
      set_number(out, j, i, activate(activation, scaled(of, sum, out, j, i, bias_of(v.fields[bias], i))));
    }
}

/// Element (row, channel) of the images to which dY·W is added under the window.
float folded_at(const program::Vertex& v, uint32_t row, uint32_t channel) {
  const FieldView& in = v.fields[panel_input_gradient_field::dy];
  const FieldView& weight = v.fields[panel_input_gradient_field::w];
  const FoldedImages images(v);
  const Window& window = images.window;
  const uint32_t image = row / window.positions(), place = row % window.positions();
  float sum = 0;
  for (uint32_t tap = 0; tap < window.taps(); ++tap) {
    const int64_t y = window.out_row(place / window.width, tap / window.kernel_width);
    const int64_t x = window.out_col(place % window.width, tap % window.kernel_width);
    if (y < 0 || x < 0) continue;
    const auto position =
        static_cast<uint32_t>((int64_t{image} * window.out_height + y) * window.out_width + x);
    for (uint32_t i = 0; i < in.cols; ++i)
      sum += f32_at(in, position, i) * panel_value(weight, i, images.column(tap, channel));
  }
  return sum;
}

/// Element (row, col) of dY·W, or of the images to which it is added.
float input_gradient_at(const program::Vertex& v, uint32_t row, uint32_t col) {
  using namespace panel_input_gradient_field;
  if (!v.fields[window].empty()) return folded_at(v, row, col);
  const FieldView& in = v.fields[dy];
  float sum = 0;
  for (uint32_t i = 0; i < in.cols; ++i) sum += f32_at(in, row, i) * panel_value(v.fields[w], i, col);
  return sum;
}

void input_gradient(const program::Vertex& v, bool adds) {
  using namespace panel_input_gradient_field;
  const FieldView& out = v.fields[dx];
  const auto activation = static_cast<Activation>(v.params[panel_input_gradient_param::activation]);
  const DenseScalars of(v.fields[scalars], adds);
  for (uint32_t j = 0; j < out.rows; ++j)
    for (uint32_t c = 0; c < out.cols; ++c) {
      const float sum = input_gradient_at(v, j, c);
      const float value = activate(activation, scaled(of, sum, out, j, c, bias_of(v.fields[bias], c)));
      const bool is_masked = !v.fields[relu].empty() && f32_at(v.fields[relu], j, c) <= 0;
      set_number(out, j, c, is_masked ? 0 : value);
    }
}

}  // namespace

void panel_forward_reference(const program::Vertex& v) { forward(v, false); }
void panel_forward_add_reference(const program::Vertex& v) { forward(v, true); }

void panel_input_gradient_reference(const program::Vertex& v) { input_gradient(v, false); }
void panel_input_gradient_add_reference(const program::Vertex& v) { input_gradient(v, true); }
void panel_weight_gradient_reference(const program::Vertex& v) { weight_gradient(v, false); }
void panel_weight_gradient_add_reference(const program::Vertex& v) { weight_gradient(v, true); }

}  // namespace tessera::kernels
