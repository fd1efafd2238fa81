// Convolutions of each channel by itself, on a host.
#pragma once

#include "ops/map/patches.h"

namespace tessera::ops {

/// out = the sum over a window's taps of weight times the element under the tap, plus a bias, clipped to
/// bounds (kernels/map/depthwise/codelet.h).
struct DepthwiseProblem {
  PatchesProblem of;
  bool bias = false;
  float low = 0;
  float high = 0;
};

/// Operands "x", "w" (channels × taps), "bias" (1 × channels, if there is one), "out".
MapOperation operation_of(const DepthwiseProblem& problem);

}  // namespace tessera::ops
