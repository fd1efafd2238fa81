// What dense vertices cost on a host.
#include "kernels/common/cost.h"

#include <algorithm>
#include <cmath>

#include "kernels/host/dense/layout.h"
#include "kernels/host/dense/micro_tile_cost.h"

namespace tessera::kernels {
namespace {

using machine::HostFigures;
using program::FieldView;
using program::Phase;

// From the engine's call to the first element.
constexpr double kVertexCycles = 100;
// Fraction of streaming operands that the micro-kernel does not hide.
constexpr double kExposedStream = 0.3;
// Transposing a vector.
constexpr double kTransposePerVector = 4;
// Adding the lanes of a dot product.
constexpr double kPerDot = 3;

double copy_cycles(const FieldView& field, const HostFigures& f) {
  const double vectors = std::ceil(field.cols / lanes_of(f)) * field.rows;
  return 2 * vectors + stream_cycles(field, f);
}

/// Of so many positions of a window, from images.
double seen_cycles(const FieldView& images, const Window& w, double rows, const HostFigures& f) {
  // Finding a piece: neighbouring taps of a row.
  constexpr double kPieceCycles = 20;
  const double pieces = w.kernel_height * (w.dilation_across > 1 ? w.kernel_width : 1.0);
  const double vectors = std::ceil(w.taps() * images.cols / lanes_of(f));
  return rows * (2 * vectors + kPieceCycles * pieces) + stream_cycles(images, f);
}

program::PhaseTimes phases(double rearrange, double compute) {
  program::PhaseTimes times;
  times[Phase::rearrange] = rearrange;
  times[Phase::compute] = kVertexCycles + compute;
  return times;
}

}  // namespace

program::PhaseTimes panel_forward_cost(const program::Vertex& v, const machine::Machine& m) {
  using namespace panel_forward_field;
  const HostFigures& f = m.figures;
  const FieldView &in = v.fields[x], &weight = v.fields[w], &out = v.fields[y];
  const double terms = panel_forward_terms(v);
  const MicroTileWork work{double{1} * weight.rows, double{1} * out.rows, terms};
  const double stream = stream_cycles(weight, f);
  const double arithmetic = micro_tile_cycles(work, widen_operations(weight.type), f);
  const double copies = v.fields[window].empty() ? copy_cycles(in, f)
                                                 : seen_cycles(in, window_of(v.fields[window]), out.rows, f);
  return phases(copies, std::max(arithmetic, stream) + kExposedStream * std::min(arithmetic, stream));
}

program::PhaseTimes panel_forward_add_cost(const program::Vertex& v, const machine::Machine& m) {
  program::PhaseTimes times = panel_forward_cost(v, m);
  times[Phase::compute] += stream_cycles(v.fields[panel_forward_field::y], m.figures);
  return times;
}

program::PhaseTimes panel_input_gradient_cost(const program::Vertex& v, const machine::Machine& m) {
  using namespace panel_input_gradient_field;
  const HostFigures& f = m.figures;
  const FieldView &in = v.fields[dy], &weight = v.fields[w], &out = v.fields[dx];
  const DenseInputMethod method(weight.type, in.rows, in.cols);
  const double rows = in.rows - method.dot_rows, terms = in.cols, cols = out.cols;
  const double batches = std::ceil(rows / kDenseBatch);
  const double stream = stream_cycles(weight, f);
  const double per_vector = kTransposePerVector / lanes_of(f);
  const double dots = method.dot_rows * cols * (terms / f.flops_per_cycle * 2 + kPerDot);
  double cycles = method.dot_rows == 0 ? 0 : std::max(dots, stream);
  if (method.along_batch) {
    const double panels = std::ceil(rows / kPanelRows);
    const double arithmetic = micro_tile_cycles({panels, cols, terms}, 0, f);
    cycles += std::max(arithmetic, batches * stream) + per_vector * panels * kPanelRows * (terms + cols);
  } else if (rows > 0) {
    const auto elements = static_cast<double>(weight.elements());
    cycles += micro_tile_cycles({std::ceil(cols / kPanelRows), rows, terms}, 0, f) +
              batches * std::max(per_vector * elements, stream);
  }
  return phases(copy_cycles(in, f), cycles);
}

program::PhaseTimes panel_weight_gradient_add_cost(const program::Vertex& v, const machine::Machine& m) {
  using namespace panel_weight_gradient_field;
  const HostFigures& f = m.figures;
  const FieldView &gradient = v.fields[dy], &in = v.fields[x], &out = v.fields[dw];
  const MicroTileWork work{double{1} * out.rows, double{1} * in.cols, double{1} * gradient.rows};
  const double copied = in.type == Type::f32 ? 0 : copy_cycles(in, f);
  const double stream = stream_cycles(out, f);
  const double arithmetic = micro_tile_cycles(work, 0, f);
  return phases(copied + copy_cycles(gradient, f),
                std::max(arithmetic, stream) + kExposedStream * std::min(arithmetic, stream));
}

program::PhaseTimes panel_weight_gradient_cost(const program::Vertex& v, const machine::Machine& m) {
  return panel_weight_gradient_add_cost(v, m);
}

}  // namespace tessera::kernels
