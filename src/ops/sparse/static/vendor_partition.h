// The partition of a static product that the vendor's library takes.
#pragma once

#include <optional>

#include "machine/model/machine.h"
#include "ops/sparse/static/static.h"

namespace tessera::ops {

/// The partition that PopLibs' partitioner of static products (SDK 3.4) finds fastest by its own estimate,
/// which ignores fixed costs and assumes that exchanges reach the full rate. None if it finds none, or one
/// that cannot be built: with work lists of single elements beyond their 16-bit offsets, or with copies of W
/// beyond the rows of a variable. Numbers of parts of X and of bands of `forced` that are not 0 are fixed.
/// The pattern and n are not empty.
std::optional<StaticPartition> vendor_partition(const StaticShape& shape, const machine::Machine& machine,
                                                const StaticPartition& forced = {0, 0, 0});

}  // namespace tessera::ops
