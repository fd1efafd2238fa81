// The weight with which a convolution of stride 1 computes the gradient of another one's images.
#pragma once

#include <tessera/sparse.h>

#include <cstdint>
#include <vector>

namespace tessera::sparse {

/// The weight [channels, taps · outputs] of the adjoint of a convolution whose weight is [outputs, taps ·
/// channels]: the taps in reverse, each transposed.
struct AdjointConvolution {
  Pattern pattern;
  std::vector<uint64_t> blocks;  ///< by block: the one of the other weight of which it is the transpose
};

/// Whether each block of a weight is of one tap, and there are only whole blocks.
bool has_adjoint(const Pattern& weight, uint32_t taps);

/// Requires has_adjoint().
AdjointConvolution adjoint_of(const Pattern& weight, uint32_t taps);

}  // namespace tessera::sparse
