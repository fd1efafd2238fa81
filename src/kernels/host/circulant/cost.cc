// What vertices of circulant and Toeplitz layers cost on a host.
#include <cmath>

#include "kernels/common/lane_columns_cost.h"
#include "kernels/host/circulant/layout.h"

namespace tessera::kernels {
namespace {

using machine::HostFigures;
using program::FieldView;
using program::Phase;

// Cycles from the engine's call to the first element.
constexpr double kVertexCycles = 200;
// Vectors of a column per direction of a transform: each halving, and loads and stores.
constexpr double kPerHalving = 0.75;
constexpr double kPerVector = 0.5;
// A direction of the transform of a single sample, or of the taps: fixed, and for each point and halving.
constexpr double kLineCycles = 350;
constexpr double kLinePerHalving = 0.15;

/// One direction of the transform of a tile.
double transform_cycles(double size, const HostFigures& f) {
  return size * column_vectors(f) * (kPerVector + kPerHalving * std::log2(size));
}

double line_cycles(double size, const HostFigures& f) {
  return column_vectors(f) * (kLineCycles + kLinePerHalving * size * std::log2(size));
}

/// The parts of a batch, and the cycles of transforms() in a number of directions.
struct Parts : ColumnParts {
  Parts(const program::Vertex& v, const FieldView& batch, uint32_t size)
      : ColumnParts(batch, v.params[circulant_param::transposed] != 0,
                    circulant_has_lines(size) ? kFewCirculantSamples : 0) {}
  double transforms(double directions, double size, const HostFigures& f) const {
    return directions * (columns * transform_cycles(size, f) + lines * line_cycles(size, f));
  }
};

program::PhaseTimes computing(double cycles) { return in_phase(Phase::compute, kVertexCycles + cycles); }

}  // namespace

program::PhaseTimes circulant_forward_cost(const program::Vertex& v, const machine::Machine& m) {
  using namespace circulant_forward_field;
  const HostFigures& f = m.figures;
  const CirculantShape shape = shape_of(v, v.fields[x], v.fields[y], v.fields[c]);
  if (shape.in == 0 || shape.out == 0) return computing(0);
  const CirculantEmbedding embedding(shape);
  const double size = embedding.size;
  const Parts parts(v, v.fields[x], embedding.size);
  return computing(line_cycles(size, f) + parts.transforms(2, size, f) +
                   move_cycles(parts.columns * size, v.fields[x], f) +
                   move_cycles(parts.columns * shape.out, v.fields[y], f));
}

program::PhaseTimes circulant_gradients_cost(const program::Vertex& v, const machine::Machine& m) {
  using namespace circulant_gradients_field;
  const HostFigures& f = m.figures;
  const bool has_dx = !v.fields[dx].empty(), has_dc = !v.fields[dc].empty();
  const CirculantShape shape = shape_of(v, has_dx ? v.fields[dx] : v.fields[x], v.fields[dy], v.fields[c]);
  if (shape.in == 0 || shape.out == 0) return computing(0);
  const CirculantEmbedding embedding(shape);
  const double size = embedding.size;
  const Parts parts(v, v.fields[dy], embedding.size);
  const double directions = 1 + (has_dx ? 1 : 0) + (has_dc ? 1 : 0);
  double cycles = parts.transforms(directions, size, f) + move_cycles(parts.columns * size, v.fields[dy], f);
  if (has_dx) cycles += line_cycles(size, f) + move_cycles(parts.columns * shape.in, v.fields[dx], f);
  if (has_dc)
    cycles += line_cycles(size, f) + move_cycles(parts.columns * size, v.fields[x], f) +
              parts.columns * kTotalPerPoint * size;
  return computing(cycles);
}

}  // namespace tessera::kernels
