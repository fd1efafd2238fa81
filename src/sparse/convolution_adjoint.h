// The weight with which a convolution computes the gradient of another one's images.
#pragma once

#include <tessera/sparse.h>

#include <cstdint>
#include <vector>

namespace tessera::sparse {

/// Where a tap of a convolution is in its adjoint, each of whose positions has elements of the images in
/// several phases: a row of the weight for each phase and channel.
struct AdjointPlace {
  uint32_t phase = 0;
  uint32_t tap = 0;

  bool operator==(const AdjointPlace&) const = default;
};

/// The places of all taps, and how many phases and taps the adjoint has.
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
  std::vector<uint64_t> blocks;  ///< by block: the one of the other weight of which it is the transpose
};

/// Whether each block of a weight is of one tap, and there are only whole blocks.
bool has_adjoint(const Pattern& weight, const AdjointPlaces& places);

/// Requires has_adjoint().
AdjointConvolution adjoint_of(const Pattern& weight, const AdjointPlaces& places);

}  // namespace tessera::sparse
