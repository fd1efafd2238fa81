// The vertices of a dense product.
#pragma once

#include <vector>

#include "ops/dense/host/host_dense.h"
#include "ops/dense/host/slice.h"

namespace tessera::ops {

/// Throws UsageError for operands of another type or shape; checks W only if it is used.
void check_operands(const Builder& builder, const HostDenseProblem& problem,
                    const HostDenseOperands& operands, bool has_weight);

/// The parts of a partition in the order of their tiles.
std::vector<DensePart> parts_of(const HostDenseProblem& problem, const HostDensePartition& partition);

/// A scratch operand with one row per tile, as long as the largest part needs.
Operand scratch_of(const Builder& builder, const HostDenseProblem& problem, uint32_t tiles,
                   const std::vector<DensePart>& parts);

/// A vertex per part, each on its own tile; an empty part does nothing. W is `operands.w`, or if there are
/// `w_boxes`, those boxes of it.
program::VertexGroup group_of(const HostDenseProblem& problem, const HostDenseOperands& operands,
                              const Operand& scratch, const std::vector<DensePart>& parts,
                              const std::vector<program::Box>& w_boxes = {});

}  // namespace tessera::ops
