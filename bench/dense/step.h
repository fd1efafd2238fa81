// One training step of a network with two dense layers.
#pragma once

#include "dense/contest.h"
#include "peers/peer.h"

namespace tessera::bench {

/// Layers k → m → classes for a batch of n: both forward products with bias, ReLU between them, the gradient
/// of the hidden layer, both weight gradients, and momentum on both weights. Gradients of the result are
/// given.
struct StepShape {
  uint32_t k = 1024;
  uint32_t m = 1024;
  uint32_t classes = 10;
  uint32_t n = 50;

  /// Operations of all products.
  double flops() const { return 2.0 * n * (2.0 * k * m + 3.0 * m * classes); }
};

/// The step as one program; with or without momentum.
Contestant tessera_step(const StepShape& shape, unsigned threads, bool with_momentum);

/// The products of a library in sequence, and momentum in a parallel loop; without bias and ReLU.
Contestant peer_step(Peer& peer, const StepShape& shape, bool with_momentum);

}  // namespace tessera::bench
