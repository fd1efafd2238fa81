// Convolutions of each channel by itself, on a host.
#pragma once

#include "ops/map/patches.h"

namespace tessera::ops {

/// out = the sums over a window's taps of weight times what they see, plus a bias, within bounds
/// (kernels/map/depthwise/codelet.h).
struct DepthwiseProblem {
  PatchesProblem of;
  bool bias = false;
  float low = 0;
  float high = 0;
};

/// Operands "x", "w" (channels × taps), "bias" (1 × channels, if there is one), "out".
MapOperation operation_of(const DepthwiseProblem& problem);

}  // namespace tessera::ops
