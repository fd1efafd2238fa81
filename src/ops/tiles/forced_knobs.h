// Forced knobs of partitions over tiles.
#pragma once

#include "ops/tiles/product.h"

namespace tessera::ops {

/// Partitions with the forced numbers; numbers that are not forced are 0. Throw UsageError for knobs that do
/// not exist or are out of range.
StaticPartition forced_static(const ForcedKnobs& force, const machine::Machine& machine);
DensePartition forced_dense(const ForcedKnobs& force, const machine::Machine& machine);
DynamicTiling forced_dynamic(const ForcedKnobs& force, const machine::Machine& machine);

}  // namespace tessera::ops
