#include "kernels/host/kronecker/cost.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/cost.h"
#include "kernels/host/kronecker/layout.h"

namespace tessera::kernels {
namespace {

using machine::HostFigures;
using program::FieldView;

// From the engine's call to the first element.
constexpr double kVertexCycles = 100;
// Of a group in a strip: calls, and choosing its panels.
constexpr double kGroupCycles = 40;
// Of a micro-tile: the call, and a mispredicted branch.
constexpr double kTileCycles = 25;
// Prologue and epilogue of a micro-tile per vector of sums.
constexpr double kPerSum = 1;
// Per vector: loading a factor that few vectors share; transposing.
constexpr double kPerFactor = 0.5;
constexpr double kTranspose = 4;
constexpr double kCopy = 2;

double micro_tile_rows(const HostFigures& f) { return lanes_of(f) >= 16 ? 12 : 6; }

/// Vectors × broadcast factors: rows × lanes sums of `terms` products.
double product_cycles(double rows, double lanes, double terms, const HostFigures& f) {
  const double vectors = std::ceil(lanes / lanes_of(f));
  const double strips = std::ceil(vectors / 2), tiles = std::ceil(rows / micro_tile_rows(f)) * strips;
  const double rate = f.flops_per_cycle / 2 / lanes_of(f);
  const double arithmetic = rows * vectors / rate;
  const double loads = (vectors * tiles / strips + rows * strips) * kPerFactor;
  return terms * std::max(arithmetic, loads) + kPerSum * rows * vectors + kTileCycles * tiles;
}

struct Shape {
  KroneckerFactor f;
  bool transposed;
  double samples;
  double strips;

  Shape(const program::Vertex& v, const FieldView& y)
      : f(factor_of(v.params)),
        transposed(v.params[kronecker_param::transposed] != 0),
        samples(transposed ? y.cols : y.rows),
        strips(std::ceil(samples / kKroneckerStrip)) {}

  /// Vectors of so many features of all samples.
  double vectors(double features, const HostFigures& figures) const {
    return features * std::ceil(samples / lanes_of(figures));
  }
  /// Cycles to copy features of the batch as columns, or back.
  double copy(double features, const HostFigures& figures) const {
    return vectors(features, figures) * (transposed ? kCopy : kTranspose);
  }
};

double stream_cycles(const FieldView& field, const HostFigures& f) {
  return bytes_of(field) / streaming_rate(bytes_of(field), f);
}

}  // namespace

program::PhaseTimes kronecker_forward_cost(const program::Vertex& v, const machine::Machine& m) {
  using namespace kronecker_forward_field;
  const HostFigures& figures = m.figures;
  const Shape s(v, v.fields[y]);
  const KroneckerFactor& f = s.f;
  const double product = product_cycles(f.b, s.samples, f.c, figures);
  const double copies = s.copy(f.inputs(), figures) + (s.transposed ? 0 : s.copy(f.outputs(), figures));
  const double streams = stream_cycles(v.fields[x], figures) + stream_cycles(v.fields[weight], figures);
  return in_phase(program::Phase::compute,
                  kVertexCycles + f.groups() * (product + kGroupCycles * s.strips) + copies + streams);
}

program::PhaseTimes kronecker_gradients_cost(const program::Vertex& v, const machine::Machine& m) {
  using namespace kronecker_gradients_field;
  const HostFigures& figures = m.figures;
  const Shape s(v, v.fields[dy]);
  const KroneckerFactor& f = s.f;
  double group = kGroupCycles * s.strips, copies = s.copy(f.outputs(), figures);
  double streams = stream_cycles(v.fields[x], figures) + stream_cycles(v.fields[dy], figures) +
                   stream_cycles(v.fields[weight], figures);
  if (!v.fields[dx].empty()) {
    group += product_cycles(f.c, s.samples, f.b, figures);
    copies += s.transposed ? 0 : s.copy(f.inputs(), figures);
  }
  if (!v.fields[dweight].empty()) {
    group += product_cycles(f.b, f.c, s.samples, figures);
    copies += s.vectors(f.inputs(), figures) * kTranspose;
    streams += stream_cycles(v.fields[dweight], figures);
  }
  return in_phase(program::Phase::compute, kVertexCycles + f.groups() * group + copies + streams);
}

}  // namespace tessera::kernels
