// The weights of adjoint convolutions, whose values are gathered from other weights.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/common/window.h"
#include "ops/builder.h"
#include "ops/operand.h"
#include "ops/sparse/host/weight.h"
#include "program/program.h"
#include "sparse/convolution_adjoint.h"

namespace tessera::ops {

/// The adjoint of a convolution as a convolution over its results. Each position has elements of the images
/// in several phases. Along a dimension whose taps overlap, these are the elements within a stride;
/// otherwise, or with both a stride and dilation, the elements under each tap.
struct AdjointTaps {
  kernels::Window window;  ///< over the results
  kernels::Window fold;    ///< over the images: the elements of each position, a tap for each phase
  sparse::AdjointPlaces places;

  /// Whether positions are the images' own.
  bool gives_images() const { return fold.taps() == 1 && fold.keeps_size(); }
  /// Whether there are sums beyond those of fold(); otherwise the adjoint is a product with the transposed
  /// weight.
  bool adds_taps() const { return window.taps() > 1; }
};

AdjointTaps adjoint_taps(const kernels::Window& window);

/// The weight of the adjoint of a convolution (sparse/convolution_adjoint.h), without values.
struct AdjointWeight {
  PackedWeight weight;
  std::vector<uint32_t> source;  ///< by place of its values: the place of the other weight's value, or of a
                                 ///< 0; does not move
};

/// Whether a sparse weight has one.
bool has_adjoint(const PackedWeight& weight, const sparse::AdjointPlaces& places);
/// Requires has_adjoint(). If the weight's pattern may change, so may its adjoint's pattern.
AdjointWeight adjoint_of(const PackedWeight& weight, const sparse::AdjointPlaces& places);
/// Changes the adjoint of a weight whose pattern has changed.
void follow_pattern(AdjointWeight& adjoint, const PackedWeight& weight, const sparse::AdjointPlaces& places);

/// Gathers the adjoint's values from the other weight. `index` is the index of `adjoint.weight`, and keeps
/// `adjoint` alive.
Operand gather_adjoint(const Builder& builder, WeightIndex& index, const AdjointWeight& adjoint,
                       const Operand& values, std::vector<program::StepId>& steps);

}  // namespace tessera::ops
