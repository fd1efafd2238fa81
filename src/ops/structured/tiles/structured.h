// Structured maps on tiled machines: chains of passes, fastfood on top of them, and Toeplitz matrices.
#pragma once

#include <vector>

#include "ops/structured/structured.h"

namespace tessera::ops {

StructuredPlan plan_on_tiles(const StructuredProblem& problem, const machine::Machine& machine);

program::StepId build_on_tiles(const Builder& builder, const StructuredProblem& problem,
                               const StructuredPartition& partition, const StructuredOperands& operands);

/// The fastest of several partitions, by exact cost. X and Y are distributed over all tiles, and a chain's
/// parameter is on the tiles that multiply by it.
StructuredPlan fastest_on_tiles(const StructuredProblem& problem, std::vector<StructuredPartition> partitions,
                                const machine::Machine& machine);

/// A product of a pass of the map.
inline TilePassProblem pass_problem(const StructuredProblem& map, const TilePass& pass,
                                    TilePassProduct product = TilePassProduct::forward) {
  return {pass, map.batch, {map.type, map.type}, product};
}

/// Kronecker-sparse factors and butterflies as passes: butterfly factors are merged into the number of passes
/// that is fastest.
StructuredPlan plan_tile_chain(const StructuredProblem& problem, const machine::Machine& machine);
program::StepId build_tile_chain(const Builder& builder, const StructuredProblem& problem,
                                 const TileChainPartition& partition, const StructuredOperands& operands);
/// The mapping of a chain's parameter to the tiles that use its elements, so that elements used by a single
/// tile are not exchanged before a pass. Empty for tied butterflies and fastfood: spread over all tiles.
std::vector<program::MappedBox> chain_parameter_mapping(const StructuredProblem& problem,
                                                        const TileChainPartition& partition);

/// Fastfood, S·H·G·Π·H·B, whose Hadamard matrices H are passes of butterfly factors.
StructuredPlan plan_tile_fastfood(const StructuredProblem& problem, const machine::Machine& machine);
program::StepId build_tile_fastfood(const Builder& builder, const StructuredProblem& problem,
                                    const TileChainPartition& partition, const StructuredOperands& operands);

/// Toeplitz and circulant matrices as dense products. The rows of the matrix, which are slices of one row of
/// diagonals, are sent to the tiles on each call.
StructuredPlan plan_tile_toeplitz(const StructuredProblem& problem, const machine::Machine& machine);
program::StepId build_tile_toeplitz(const Builder& builder, const StructuredProblem& problem,
                                    const TileToeplitzPartition& partition,
                                    const StructuredOperands& operands);

}  // namespace tessera::ops
