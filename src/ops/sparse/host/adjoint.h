// The weights of adjoint convolutions, whose values are gathered from those of other weights.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/builder.h"
#include "ops/operand.h"
#include "ops/sparse/host/weight.h"
#include "program/program.h"

namespace tessera::ops {

/// The weight of the adjoint of a convolution (sparse/convolution_adjoint.h), without values.
struct AdjointWeight {
  PackedWeight weight;
  std::vector<uint32_t> source;  ///< by place of its values: the place of the other weight's value, or of a
                                 ///< 0; does not move
};

/// Whether a sparse weight has one.
bool has_adjoint(const PackedWeight& weight, uint32_t taps);
/// Requires has_adjoint(). If the weight's pattern may change, then so may that of its adjoint.
AdjointWeight adjoint_of(const PackedWeight& weight, uint32_t taps);
/// Changes the adjoint of a weight whose pattern has changed.
void follow_pattern(AdjointWeight& adjoint, const PackedWeight& weight, uint32_t taps);

/// Gathers the adjoint's values from those of the other weight. `index` is that of `adjoint.weight`, which
/// keeps `adjoint` alive.
Operand gather_adjoint(const Builder& builder, WeightIndex& index, const AdjointWeight& adjoint,
                       const Operand& values, std::vector<program::StepId>& steps);

}  // namespace tessera::ops
