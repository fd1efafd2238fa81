// SDDMM of static sparse products on tiled machines: dW = dY·Xᵀ at the pattern of W.
#pragma once

#include <vector>

#include "machine/model/machine.h"
#include "ops/sparse/static/static.h"

namespace tessera::ops {

/// The mirrored forward product: the partition distributes the same blocks and columns of n, but a tile
/// gathers rows of X and of dY, computes its blocks for its columns, and sends them to the tiles that own W's
/// values, which add the results of the parts of the columns. If the columns are in one part and W is laid
/// out by this partition, blocks stay where they are computed. X and dY are distributed over all tiles.
struct StaticSddmmShape {
  const Pattern& pattern;
  uint32_t n = 0;
  TiledNumbers numbers;
  const ValueLayout& values;  ///< layout of W, hence of dW

  /// Whether the partition computes blocks where they are stored.
  bool stays(const StaticPartition& partition) const {
    return partition.col_parts == 1 && values.partition.col_parts == 1 &&
           partition.deals_as(values.partition);
  }
};

/// All candidate partitions, as in static_partitions().
std::vector<Expected<StaticPartition>> sddmm_partitions(const StaticSddmmShape& shape,
                                                        const machine::Machine& machine,
                                                        const StaticPartition& forced);

/// Adds dW = dY·Xᵀ to a program. dW has the shape's layout; X and dY may have any mapping.
program::StepId build_static_sddmm(const Builder& builder, const StaticSddmmShape& shape,
                                   const PartLayout& parts, const ProductOperands& operands);

}  // namespace tessera::ops
