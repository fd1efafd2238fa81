// What vertices of products with a Kronecker-sparse factor cost on a host.
#include "kernels/common/cost.h"

#include <algorithm>
#include <cmath>

#include "kernels/host/kronecker/layout.h"

namespace tessera::kernels {
namespace {

using machine::HostFigures;
using program::FieldView;

// Cycles from the engine's call to the first element.
constexpr double kVertexCycles = 100;
// Cycles per group in a strip: calls, and choosing its panels.
constexpr double kGroupCycles = 60;
// Distance of the micro-kernels from the rate of multiply-adds.
constexpr double kSlack = 1.04;
// Prologue and epilogue of a micro-tile, and per vector of its sums.
constexpr double kTileCycles = 15;
constexpr double kPerSum = 1;
// Copying and transposing, per vector; gathering, per element.
constexpr double kCopy = 2;
constexpr double kTranspose = 5;
constexpr double kGather = 1;
// Adding the lanes of a dot product.
constexpr double kPerDot = 3;
// Fraction of streaming operands that the micro-kernels do not hide.
constexpr double kExposedStream = 0.5;

double micro_tile_rows(const HostFigures& f) { return lanes_of(f) >= 16 ? 12 : 6; }

double vectors_of(double elements, const HostFigures& f) { return std::ceil(elements / lanes_of(f)); }

/// rows × lanes sums of `terms` products.
double product_cycles(double rows, double lanes, double terms, const HostFigures& f) {
  const double vectors = vectors_of(lanes, f);
  const double tiles = std::ceil(rows / micro_tile_rows(f)) * std::ceil(vectors / 2);
  const double rate = f.flops_per_cycle / 2 / lanes_of(f);
  return kSlack * terms * rows * vectors / rate + kPerSum * rows * vectors + kTileCycles * tiles;
}

/// How a vertex computes, and the cycles of its parts for all groups.
class Method {
 public:
  Method(const program::Vertex& v, const FieldView& y, const HostFigures& figures)
      : f_(factor_of(v.params)),
        figures_(figures),
        transposed_(v.params[kronecker_param::transposed] != 0),
        samples_(transposed_ ? y.cols : y.rows),
        few_(samples_ <= kFewSamples) {
    const uint32_t samples = transposed_ ? y.cols : y.rows;
    strided_ = !transposed_ && suits_group_lanes(f_, samples, static_cast<uint32_t>(lanes_of(figures)));
    in_rows_ = !transposed_ && f_.d == 1;
  }

  double forward() const {
    if (few_) return groups(dots() + kGather * samples_ * (f_.b + f_.c));
    if (strided_) return strided(f_.b, f_.c, samples_) + panel();
    if (in_rows_)
      return groups(kTranspose * f_.b * vectors(f_.c) + kCopy * samples_ * vectors(f_.c) +
                    product(samples_, f_.b, f_.c));
    return columns(f_.c) + (transposed_ ? 0 : columns(f_.b)) + groups(product(f_.b, samples_, f_.c));
  }

  double input_gradient() const {
    if (strided_) return strided(f_.c, f_.b, samples_) + panel();
    if (few_ || in_rows_)
      return groups((few_ ? kGather : kCopy) * samples_ * vectors(f_.b) + product(samples_, f_.c, f_.b));
    return columns(f_.b) + (transposed_ ? 0 : columns(f_.c)) + groups(product(f_.c, samples_, f_.b));
  }

  double weight_gradient() const {
    if (strided_) return strided(f_.b, f_.c, samples_) + panel();
    const double rows = (few_ ? kGather : in_rows_ ? kCopy : kTranspose) * samples_ * vectors(f_.c);
    return groups(rows + product(f_.b, f_.c, samples_));
  }

 private:
  double vectors(double elements) const { return vectors_of(elements, figures_); }
  double groups(double cycles) const {
    return f_.groups() * (cycles + kGroupCycles * std::ceil(samples_ / kKroneckerStrip));
  }
  double product(double rows, double lanes, double terms) const {
    return product_cycles(rows, lanes, terms, figures_);
  }
  double dots() const { return samples_ * f_.b * (vectors(f_.c) + kPerDot); }
  /// Features of a group in lanes of samples, from memory or back.
  double columns(double features) const {
    const double both = kCopy + (transposed_ ? 0 : kTranspose);
    return f_.groups() * features * vectors(samples_) * both;
  }
  double lanes_of_groups() const { return f_.a * vectors(f_.d); }
  /// Weights of all groups in lanes, from memory or back.
  double panel() const { return kTranspose * lanes_of_groups() * f_.b * f_.c; }
  double strided(double cols, double terms, double rows) const {
    return lanes_of_groups() * product_cycles(rows, cols * lanes_of(figures_), terms, figures_);
  }

  KroneckerFactor f_;
  const HostFigures& figures_;
  bool transposed_;
  double samples_;
  bool few_;
  bool strided_;
  bool in_rows_;
};

program::PhaseTimes computing(double arithmetic, double streams) {
  return in_phase(program::Phase::compute, kVertexCycles + std::max(arithmetic, streams) +
                                               kExposedStream * std::min(arithmetic, streams));
}

}  // namespace

program::PhaseTimes kronecker_forward_cost(const program::Vertex& v, const machine::Machine& m) {
  using namespace kronecker_forward_field;
  const HostFigures& f = m.figures;
  return computing(
      Method(v, v.fields[y], f).forward(),
      stream_cycles(v.fields[x], f) + stream_cycles(v.fields[weight], f) + stream_cycles(v.fields[y], f));
}

program::PhaseTimes kronecker_gradients_cost(const program::Vertex& v, const machine::Machine& m) {
  using namespace kronecker_gradients_field;
  const HostFigures& f = m.figures;
  const Method method(v, v.fields[dy], f);
  double arithmetic = 0, streams = stream_cycles(v.fields[dy], f);
  if (!v.fields[dx].empty()) {
    arithmetic += method.input_gradient();
    streams += stream_cycles(v.fields[weight], f) + stream_cycles(v.fields[dx], f);
  }
  if (!v.fields[dweight].empty()) {
    arithmetic += method.weight_gradient();
    streams += stream_cycles(v.fields[x], f) + stream_cycles(v.fields[dweight], f);
  }
  return computing(arithmetic, streams);
}

}  // namespace tessera::kernels
