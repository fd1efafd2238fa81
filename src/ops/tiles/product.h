// Y = W·X, with sparse or dense W, and its gradients, on a machine whose tiles have their own memories.
#pragma once

#include <tessera/sparse.h>
#include <tessera/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "machine/model/machine.h"
#include "ops/dense/dense.h"
#include "ops/plan.h"
#include "ops/product_problem.h"
#include "ops/sparse/dynamic/dynamic.h"
#include "ops/sparse/host/spmm.h"
#include "ops/sparse/static/sddmm.h"
#include "ops/sparse/static/static.h"
#include "program/program.h"

namespace tessera::ops {

/// How a product is partitioned over tiles. Its predictions are exact for the program that is built from it:
/// cycles by phase equal the program's cost report, and bytes are an upper bound. `chosen.rejected`
/// says if not even the chosen partition fits in memory.
struct TileProductPlan : Plan<std::variant<StaticPartition, DensePartition, DynamicTiling>> {
  ProductLayouts layouts;     ///< layouts of operands for which the plan was made
  StaticPartition values_of;  ///< for gradients of a sparse W: the forward product's partition, which
                              ///< determines the layout of W and dW
  uint32_t steps = 0;         ///< for a dynamic W: propagation steps of the random pattern for which costs
                              ///< were computed

  uint32_t tiles_used() const;
};

/// Throws UsageError for types that tiled machines lack, and for knobs that do not exist or are out of range.
void check_tile_product(const ProductProblem& problem, const machine::Machine& machine,
                        const ForcedKnobs& force);

/// Plans a product. Compares candidates by expected cost, computes the exact cost of the most promising ones
/// and chooses the fastest that fits in memory. If no candidate fits, the one that overflows least is chosen:
/// not fitting is a valid result. Knobs: col_parts, bands, band_tiles (sparse; not band_tiles with the
/// vendor's planner, which has none for dW); m_parts, k_parts, n_parts, m_slices, n_slices (dense).
///
/// The layout of each operand may be left to the plan, fixed, or chosen from several (`layouts`); if the
/// product needs another order of elements than an operand has, the conversion is part of the cost.
///
/// A gradient of a sparse product reads or writes the values of W in the forward product's layout: dX = Wᵀ·dY
/// is the product with the transposed pattern, or in the forward product's partition reads each block as its
/// transpose; dW = dY·Xᵀ is computed at the pattern's blocks, in the forward product's partition or another
/// one. `forward` is the forward product's plan; without it, the forward product is planned too. A dense
/// gradient uses the forward product's partition and layouts; without `forward` it is an ordinary dense
/// product of other operands, in layouts of its own plan.
///
/// For a dynamic W only the shape of the pattern counts. Costs of candidates are computed for a random
/// pattern with the maximum number of blocks. Knobs: m_parts, k_parts, n_parts. Its gradients use the forward
/// product's grid and buckets, so that one encoding serves all three products.
///
/// A process caches its last plans whose layouts were free: an equal product on an equal part of a machine is
/// planned once.
TileProductPlan plan_tile_product(const Pattern& pattern, const ProductProblem& problem,
                                  const machine::Machine& machine, const ForcedKnobs& force = {},
                                  const TileProductPlan* forward = nullptr,
                                  const LayoutChoices& layouts = {});

/// The knobs of partitions of a dense weight's forward product that are worth comparing where its gradients
/// are computed in the same partition.
std::vector<ForcedKnobs> knobs_with_gradients(const Pattern& pattern, const ProductProblem& problem,
                                              const machine::Machine& machine);

/// Adds a planned product to a program. Operands are stored in the order of the plan's layouts, and may have
/// any mapping; another mapping than the layouts have costs an exchange.
BuiltProduct build(const Builder& builder, const Pattern& pattern, const ProductProblem& problem,
                   const TileProductPlan& plan, const ProductOperands& operands);

/// A dynamic product's buckets, which serve all patterns, and the encoding of the present pattern.
struct DynamicWeight {
  DynamicShape shape;
  DynamicGrid grid;
  DynamicEncoding encoding;
  program::VariableId bucket_metadata = 0;  ///< the part of encoding.metadata that a tile processes

  /// The exact cost of the program with the present pattern.
  compiler::Estimate estimate(const program::Program& program, const machine::Machine& machine) const;
};

/// The program of a plan, with operands that the caller binds, and their storage order. `values` is W or dW,
/// `x` is X or dX (k × n), and `y` is Y or dY (m × n): each product reads two of them and writes the third.
struct TileProductProgram {
  program::Program program;
  ProductOperands operands;
  ProductLayouts layouts;
  std::vector<uint64_t> block_order;  ///< sparse: stored block i is the pattern's block block_order[i]; for a
                                      ///< dynamic W, DynamicEncoding::kNoBlock for a free slot
  bool dense = false;
  std::optional<DynamicWeight> dynamic;

  /// Encodes another pattern of a dynamic W; the program does not change. Throws as encode() does.
  void set_pattern(const Pattern& pattern);

  /// Converts W to the elements to bind; and stored elements to the values of a matrix with the product's
  /// pattern. X and Y are converted by their layouts.
  std::vector<float> stored_weight(const SparseMatrix& matrix) const;
  void load_weight(std::span<const float> stored, SparseMatrix& matrix) const;
};

/// A product as a separate program, with its plan.
struct PlannedTileProduct {
  TileProductPlan plan;
  TileProductProgram program;
};

/// Plans as plan_tile_product() does, and returns the program that was built to compute the exact cost of the
/// chosen candidate.
PlannedTileProduct plan_closed_product(const Pattern& pattern, const ProductProblem& problem,
                                       const machine::Machine& machine, const ForcedKnobs& force = {},
                                       const TileProductPlan* forward = nullptr,
                                       const LayoutChoices& layouts = {});

std::string to_string(const TileProductPlan& plan);

}  // namespace tessera::ops
