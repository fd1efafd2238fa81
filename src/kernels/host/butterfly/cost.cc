// What vertices of products with butterfly matrices cost on a host.
#include "kernels/common/cost.h"

#include <algorithm>
#include <cmath>

#include "kernels/host/butterfly/layout.h"

namespace tessera::kernels {
namespace {

using machine::HostFigures;
using program::FieldView;
using program::Phase;

// Cycles from the engine's call to the first element.
constexpr double kVertexCycles = 150;
// Distance of the passes from the rate of multiply-adds.
constexpr double kSlack = 1.15;
// Multiply-adds of a feature in a factor: of values; of gradients, with the inputs computed again.
constexpr double kForwardOperations = 2;
constexpr double kGradientOperations = 7;
// A vector of pairs of a single sample, whose coefficients are rearranged.
constexpr double kPerPairs = 6.5;
// Adding the lanes of a coefficient's sum, and storing it.
constexpr double kPerSum = 2.5;
// Transposing a vector.
constexpr double kTransposePerVector = 4;

double copy_cycles(const FieldView& field, const HostFigures& f) {
  return kTransposePerVector * static_cast<double>(field.elements()) / lanes_of(f) + stream_cycles(field, f);
}

/// Cycles of the samples beyond whole tiles that are multiplied one by one, and how many these are.
struct SingleSamples {
  uint32_t count = 0;
  double cycles = 0;

  SingleSamples(const ButterflyShape& s, uint32_t samples, const HostFigures& f) {
    const uint32_t rest = samples % kButterflyLanes;
    if (!butterfly_along_features(s, rest, static_cast<uint32_t>(lanes_of(f)))) return;
    count = rest;
    cycles = kPerPairs * rest * s.stacks * s.factors() * (s.n() / 2 / lanes_of(f));
  }
};

/// Cycles of `operations` multiply-adds per feature of each factor, on a batch padded to whole tiles.
double multiply_cycles(const ButterflyShape& s, double samples, double operations, const HostFigures& f) {
  const double features = double{1} * s.n() * s.parts() * s.parts() * s.stacks * s.factors();
  const double padded = std::ceil(samples / kButterflyLanes) * kButterflyLanes;
  return kSlack * operations * features * padded / (f.flops_per_cycle / 2);
}

program::PhaseTimes phases(double rearrange, double compute) {
  program::PhaseTimes times;
  times[Phase::rearrange] = rearrange;
  times[Phase::compute] = kVertexCycles + compute;
  return times;
}

}  // namespace

program::PhaseTimes butterfly_forward_cost(const program::Vertex& v, const machine::Machine& m) {
  using namespace butterfly_forward_field;
  const ButterflyShape s = butterfly_shape(v);
  const FieldView& out = v.fields[y];
  const uint32_t samples = s.transposed ? out.cols : out.rows;
  const SingleSamples singles(s, samples, m.figures);
  const double arithmetic =
      singles.cycles + multiply_cycles(s, samples - singles.count, kForwardOperations, m.figures);
  return phases(s.stacks * copy_cycles(v.fields[x], m.figures) + copy_cycles(out, m.figures),
                std::max(arithmetic, stream_cycles(v.fields[twiddle], m.figures)));
}

program::PhaseTimes butterfly_gradients_cost(const program::Vertex& v, const machine::Machine& m) {
  using namespace butterfly_gradients_field;
  const ButterflyShape s = butterfly_shape(v);
  const FieldView &gradient = v.fields[dy], &sums = v.fields[dtwiddle];
  const double samples = s.transposed ? gradient.cols : gradient.rows;
  double copies = copy_cycles(gradient, m.figures) + copy_cycles(v.fields[dx], m.figures);
  double cycles =
      multiply_cycles(s, samples, sums.empty() ? kForwardOperations : kGradientOperations, m.figures);
  if (!sums.empty()) {
    const double tiles = std::ceil(samples / butterfly_gradient_lanes(s, static_cast<uint32_t>(samples)));
    copies += s.stacks * copy_cycles(v.fields[x], m.figures);
    cycles += kPerSum * std::max(1.0, tiles) * s.stacks * s.factors() * s.n() / 2 * s.matrix();
  }
  return phases(copies, cycles);
}

}  // namespace tessera::kernels
