#include "kernels/host/circulant/cost.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/cost.h"
#include "kernels/host/circulant/layout.h"

namespace tessera::kernels {
namespace {

using machine::HostFigures;
using program::FieldView;
using program::Phase;

// From the engine's call to the first element.
constexpr double kVertexCycles = 200;
// Vector operations per point and halving of a transform: additions, and products by roots that run beside
// them.
constexpr double kPerHalving = 1.0;
// Per point and direction, besides: the passes over columns beyond the L1 cache.
constexpr double kPerPoint = 2;
// Moving a point of all lanes between the batch and its column.
constexpr double kMovePerPoint = 8;
// Adding the lanes of a column.
constexpr double kTotalPerPoint = 8;
// A tap: gathering and scaling it.
constexpr double kPerTap = 6;

double vectors_of(const HostFigures& f) { return kColumnLanes / lanes_of(f); }

/// One direction of the transform of a tile.
double transform_cycles(double size, const HostFigures& f) {
  return size * vectors_of(f) * (kPerPoint + kPerHalving * std::log2(size));
}

double move_cycles(double points, double bytes, const HostFigures& f) {
  return kMovePerPoint * points * vectors_of(f) + bytes / streaming_rate(bytes, f);
}

double tiles_of(const program::Vertex& v, const FieldView& field) {
  const bool transposed = v.params[circulant_param::transposed] != 0;
  return std::ceil(double{1} * (transposed ? field.cols : field.rows) / kColumnLanes);
}

double taps_cycles(double size, const HostFigures& f) { return transform_cycles(size, f) + kPerTap * size; }

program::PhaseTimes computing(double cycles) { return in_phase(Phase::compute, kVertexCycles + cycles); }

}  // namespace

program::PhaseTimes circulant_forward_cost(const program::Vertex& v, const machine::Machine& m) {
  using namespace circulant_forward_field;
  const HostFigures& f = m.figures;
  const CirculantShape shape = shape_of(v, v.fields[x], v.fields[y], v.fields[c]);
  if (shape.in == 0 || shape.out == 0) return computing(0);
  const double size = CirculantEmbedding(shape).size, tiles = tiles_of(v, v.fields[x]);
  return computing(taps_cycles(size, f) + tiles * 2 * transform_cycles(size, f) +
                   move_cycles(tiles * size, bytes_of(v.fields[x]), f) +
                   move_cycles(tiles * shape.out, bytes_of(v.fields[y]), f));
}

program::PhaseTimes circulant_gradients_cost(const program::Vertex& v, const machine::Machine& m) {
  using namespace circulant_gradients_field;
  const HostFigures& f = m.figures;
  const bool has_dx = !v.fields[dx].empty(), has_dc = !v.fields[dc].empty();
  const CirculantShape shape = shape_of(v, has_dx ? v.fields[dx] : v.fields[x], v.fields[dy], v.fields[c]);
  if (shape.in == 0 || shape.out == 0) return computing(0);
  const double size = CirculantEmbedding(shape).size, tiles = tiles_of(v, v.fields[dy]);
  const double transforms = 1 + (has_dx ? 1 : 0) + (has_dc ? 1 : 0);
  double cycles =
      tiles * transforms * transform_cycles(size, f) + move_cycles(tiles * size, bytes_of(v.fields[dy]), f);
  if (has_dx) cycles += taps_cycles(size, f) + move_cycles(tiles * shape.in, bytes_of(v.fields[dx]), f);
  if (has_dc)
    cycles += taps_cycles(size, f) + move_cycles(tiles * size, bytes_of(v.fields[x]), f) +
              tiles * kTotalPerPoint * size;
  return computing(cycles);
}

}  // namespace tessera::kernels
