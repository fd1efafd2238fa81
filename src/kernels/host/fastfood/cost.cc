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
// Per vector and pass of a transform, and beyond the L1 cache.
constexpr double kPerPass = 1.7;
constexpr double kBeyondL1 = 2.2;
constexpr double kHalvingsOfPass = 4;
// Moving a vector between the batch and its column.
constexpr double kMovePerVector = 3;
// Adding the lanes of a column.
constexpr double kTotalPerPoint = 5;

double vectors_of(const HostFigures& f) { return kColumnLanes / lanes_of(f); }

double transform_cycles(double size, const HostFigures& f) {
  const double passes = std::max(1.0, std::ceil(std::log2(size) / kHalvingsOfPass));
  const double bytes = size * kColumnLanes * sizeof(float);
  const double beyond = bytes > static_cast<double>(f.l1_bytes) ? kBeyondL1 : 0;
  return size * vectors_of(f) * (passes * kPerPass + beyond);
}

double move_cycles(double points, double bytes, const HostFigures& f) {
  return kMovePerVector * points * vectors_of(f) + bytes / streaming_rate(bytes, f);
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
