// What vertices of fastfood layers cost on a host.
#include <algorithm>
#include <cmath>

#include "kernels/common/lane_columns_cost.h"
#include "kernels/host/fastfood/codelet.h"
#include "kernels/host/fastfood/layout.h"

namespace tessera::kernels {
namespace {

using machine::HostFigures;
using program::FieldView;
using program::Phase;

// Cycles from the engine's call to the first element.
constexpr double kVertexCycles = 80;
// Per vector and pass of a transform, and beyond the L1 cache.
constexpr double kPerPass = 1.7;
constexpr double kBeyondL1 = 2.2;
constexpr double kHalvingsOfPass = 4;
// AVX2 has fewer registers than a pass takes vectors.
constexpr double kSpilling = 1.6;
// A transform of a single sample: fixed, and for each point; and moving a point to where it was permuted
// from.
constexpr double kLineCycles = 75;
constexpr double kLinePerPoint = 0.75;
constexpr double kScatterPerPoint = 1;

double transform_cycles(double size, const HostFigures& f) {
  const double passes = std::max(1.0, std::ceil(std::log2(size) / kHalvingsOfPass));
  const double bytes = size * kColumnLanes * sizeof(float);
  const double beyond = bytes > static_cast<double>(f.l1_bytes) ? kBeyondL1 : 0;
  const double spilling = f.isa == Isa::avx2 ? kSpilling : 1;
  return size * column_vectors(f) * spilling * (passes * kPerPass + beyond);
}

/// The parts of a batch, and the cycles of a number of transforms.
struct Parts : ColumnParts {
  Parts(const program::Vertex& v, const FieldView& batch, uint32_t size)
      : ColumnParts(batch, v.params[fastfood_param::transposed] != 0,
                    fastfood_has_lines(size) ? kFewFastfoodSamples : 0) {}
  double transforms(double count, double size, const HostFigures& f) const {
    return count * (columns * transform_cycles(size, f) +
                    lines * column_vectors(f) * (kLineCycles + kLinePerPoint * size));
  }
};

program::PhaseTimes computing(double cycles) { return in_phase(Phase::compute, kVertexCycles + cycles); }

}  // namespace

program::PhaseTimes fastfood_forward_cost(const program::Vertex& v, const machine::Machine& m) {
  using namespace fastfood_forward_field;
  const HostFigures& f = m.figures;
  if (v.fields[s].empty()) return computing(0);
  const double size = v.fields[s].cols, stacks = v.fields[s].rows;
  const Parts parts(v, v.fields[x], v.fields[s].cols);
  return computing(stacks * parts.transforms(2, size, f) + move_cycles(parts.columns * size, v.fields[x], f) +
                   move_cycles(parts.columns * stacks * size, v.fields[y], f));
}

program::PhaseTimes fastfood_gradients_cost(const program::Vertex& v, const machine::Machine& m) {
  using namespace fastfood_gradients_field;
  const HostFigures& f = m.figures;
  if (v.fields[s].empty()) return computing(0);
  const double size = v.fields[s].cols, stacks = v.fields[s].rows;
  const Parts parts(v, v.fields[dy], v.fields[s].cols);
  const auto wants = [&](size_t field) { return v.fields[field].empty() ? 0.0 : 1.0; };
  const double transforms = std::max(wants(ds), wants(dg)) + wants(ds) +
                            std::max({wants(dg), wants(db), wants(dx)}) + std::max(wants(db), wants(dx));
  const double totals = wants(ds) + wants(dg) + wants(db);
  const double moved = parts.lines * kScatterPerPoint + parts.columns * totals * kTotalPerPoint;
  return computing(stacks * (parts.transforms(transforms, size, f) + moved * size) +
                   move_cycles(parts.columns * size, v.fields[x], f) +
                   move_cycles(parts.columns * stacks * size, v.fields[dy], f) +
                   move_cycles(parts.columns * size, v.fields[dx], f));
}

}  // namespace tessera::kernels
