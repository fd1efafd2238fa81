// Cost of the micro-kernel of dense products on a host.
#pragma once

#include <cmath>

#include "kernels/common/cost.h"
#include "kernels/host/dense/codelet.h"

namespace tessera::kernels {

/// The work of a micro-tile: panels × factors sums of `terms` products.
struct MicroTileWork {
  double panels = 0;
  double factors = 0;
  double terms = 0;
};

/// Cycles without streaming the operands from beyond the L1 cache; `widen` operations for each vector of a
/// panel convert it to FP32.
inline double micro_tile_cycles(const MicroTileWork& work, double widen, const machine::HostFigures& f) {
  constexpr double kSlack = 1.04;  // distance from the rate of multiply-adds
  // Prologue and epilogue of a micro-tile, beside its multiply-adds: clearing, storing and finishing sums,
  // per vector of sums; the call, and a mispredicted branch.
  constexpr double kPerSum = 1, kTileCycles = 20;
  const bool is_wide = lanes_of(f) >= 16;
  const double vectors = kPanelRows / lanes_of(f);
  const double factor_tiles = std::ceil(work.factors / (is_wide ? 12 : 6));
  const double panel_tiles = std::ceil(work.panels / (is_wide ? 2 : 1));
  const double rate = f.flops_per_cycle / 2 / lanes_of(f);  // vectors of multiply-adds
  const double sums = work.panels * vectors * work.factors;
  const double widening = work.panels * vectors * factor_tiles * work.terms * widen;
  return (kSlack * sums * work.terms + widening) / rate + kPerSum * sums +
         kTileCycles * factor_tiles * panel_tiles;
}

}  // namespace tessera::kernels
