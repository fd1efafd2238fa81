// The weight with which a convolution computes the gradient of another one's images.
#pragma once

#include <tessera/sparse.h>

#include <cstdint>
#include <vector>

namespace tessera::sparse {

/// The position of a convolution's tap in its adjoint. Each position of the adjoint has elements of the
/// images in several phases: its weight has a row for each phase and channel.
struct AdjointPlace {
  uint32_t phase = 0;
  uint32_t tap = 0;

  bool operator==(const AdjointPlace&) const = default;
};

/// The positions of all taps, and the numbers of phases and taps of the adjoint.
struct AdjointPlaces {
  std::vector<AdjointPlace> of;
  uint32_t phases = 1;
  uint32_t taps = 0;

  bool operator==(const AdjointPlaces&) const = default;
};

/// The weight [phases · channels, taps · outputs] of the adjoint of a convolution whose weight is [outputs,
/// taps · channels]: the taps, each transposed.
struct AdjointConvolution {
  Pattern pattern;
  std::vector<uint64_t> blocks;  ///< by block: the block of the other weight of which it is the transpose
};

/// Whether each block of a weight lies within one tap, and no block overhangs.
bool has_adjoint(const Pattern& weight, const AdjointPlaces& places);

/// Requires has_adjoint().
AdjointConvolution adjoint_of(const Pattern& weight, const AdjointPlaces& places);

}  // namespace tessera::sparse
