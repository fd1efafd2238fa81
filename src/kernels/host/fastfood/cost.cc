#include "kernels/host/fastfood/cost.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/cost.h"
#include "kernels/common/lane_columns.h"
#include "kernels/host/fastfood/codelet.h"

namespace tessera::kernels {
namespace {

using machine::HostFigures;
using program::FieldView;
using program::Phase;

// From the engine's call to the first element.
constexpr double kVertexCycles = 150;
// Per vector of a transform: each halving, and loads and stores of its passes.
constexpr double kPerHalving = 0.5;
constexpr double kPerPoint = 5;
// Moving a vector between the batch and its column.
constexpr double kMovePerPoint = 4;
// Adding the lanes of a column.
constexpr double kTotalPerPoint = 5;

double vectors_of(const HostFigures& f) { return kColumnLanes / lanes_of(f); }

double transform_cycles(double size, const HostFigures& f) {
  return size * vectors_of(f) * (kPerPoint + kPerHalving * std::log2(size));
}

double move_cycles(double points, double bytes, const HostFigures& f) {
  return kMovePerPoint * points * vectors_of(f) + bytes / streaming_rate(bytes, f);
}

double tiles_of(const program::Vertex& v, const FieldView& field) {
  const bool transposed = v.params[fastfood_param::transposed] != 0;
  return std::ceil(double{1} * (transposed ? field.cols : field.rows) / kColumnLanes);
}

program::PhaseTimes computing(double cycles) { return in_phase(Phase::compute, kVertexCycles + cycles); }

}  // namespace

program::PhaseTimes fastfood_forward_cost(const program::Vertex& v, const machine::Machine& m) {
  using namespace fastfood_forward_field;
  const HostFigures& f = m.figures;
  if (v.fields[s].empty()) return computing(0);
  const double size = v.fields[s].cols, stacks = v.fields[s].rows, tiles = tiles_of(v, v.fields[x]);
  return computing(tiles * stacks * 2 * transform_cycles(size, f) +
                   move_cycles(tiles * size, bytes_of(v.fields[x]), f) +
                   move_cycles(tiles * stacks * size, bytes_of(v.fields[y]), f));
}

program::PhaseTimes fastfood_gradients_cost(const program::Vertex& v, const machine::Machine& m) {
  using namespace fastfood_gradients_field;
  const HostFigures& f = m.figures;
  if (v.fields[s].empty()) return computing(0);
  const double size = v.fields[s].cols, stacks = v.fields[s].rows, tiles = tiles_of(v, v.fields[dy]);
  const auto wants = [&](size_t field) { return v.fields[field].empty() ? 0.0 : 1.0; };
  const double transforms = std::max(wants(ds), wants(dg)) + wants(ds) +
                            std::max({wants(dg), wants(db), wants(dx)}) + std::max(wants(db), wants(dx));
  const double totals = wants(ds) + wants(dg) + wants(db);
  return computing(tiles * stacks *
                       (transforms * transform_cycles(size, f) + totals * kTotalPerPoint * size) +
                   move_cycles(tiles * size, bytes_of(v.fields[x]), f) +
                   move_cycles(tiles * stacks * size, bytes_of(v.fields[dy]), f) +
                   move_cycles(tiles * size, bytes_of(v.fields[dx]), f));
}

}  // namespace tessera::kernels
