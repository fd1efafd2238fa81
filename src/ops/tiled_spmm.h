// Y = W·X, W sparse or dense, on a machine whose tiles have memories of their own.
#pragma once

#include <tessera/sparse.h>
#include <tessera/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "machine/machine.h"
#include "ops/plan.h"
#include "ops/spmm.h"
#include "ops/tiled_dense.h"
#include "ops/tiled_static.h"
#include "program/program.h"

namespace tessera::ops {

/// A product of tiles, but for its weight.
struct TiledSpmmProblem {
  uint32_t n = 0;
  Type type = Type::f32;      ///< of W, X and Y: f32 or f16
  Type partials = Type::f32;  ///< of sums that leave a tile: `type`, or f32
  Planner planner = Planner::best;
  bool dense = false;  ///< whether W is taken as full, whatever its pattern
  Product product = Product::forward;

  TiledNumbers numbers() const { return {type, partials}; }
};

/// How a product is cut over tiles. Its words are those of the program that build_tiled_spmm makes
/// of it: cycles by phase are the account's, and bytes not below.
struct TiledSpmmPlan {
  std::variant<StaticCut, DenseCut> cut;
  PlanCandidate chosen;  ///< `rejected` where not even this one fits the memory
  std::vector<PlanCandidate> candidates;

  uint32_t tiles_used() const;
};

/// Throws UsageError for types that tiled machines lack, and for knobs that do not exist or are out
/// of range.
void check_tiled_spmm(const TiledSpmmProblem& problem, const machine::Machine& machine,
                      const ForcedKnobs& force);

/// Weighs cuts by expected counts, recounts the most promising ones exactly and keeps the fastest
/// that fits the memory. Where none fits, the one that overflows least is chosen: not fitting is an
/// answer. Knobs: col_parts, bands, band_tiles (sparse); m_parts, k_parts, n_parts, m_slices,
/// n_slices (dense).
TiledSpmmPlan plan_tiled_spmm(const Pattern& pattern, const TiledSpmmProblem& problem,
                              const machine::Machine& machine, const ForcedKnobs& force = {});

/// A plan's program, and the order in which it wants its operands.
struct TiledSpmmProgram {
  program::Program program;
  SpmmVariables variables;

  std::vector<uint64_t>
      block_order;       ///< sparse: stored block i is the pattern's block block_order[i]
  PartedMatrix w, x, y;  ///< dense: how the operands are stored; sparse X and Y are as they are
  bool dense = false;

  /// The elements to bind to the variables, from row-major matrices, and the result back.
  std::vector<float> stored_weight(const SparseMatrix& matrix) const;
  std::vector<float> stored_x(std::span<const float> x) const;
  void load_y(std::span<const float> stored, std::span<float> y) const;
};

TiledSpmmProgram build_tiled_spmm(const Pattern& pattern, const TiledSpmmProblem& problem,
                                  const TiledSpmmPlan& plan, const machine::Machine& machine);

std::string to_string(const TiledSpmmPlan& plan);

}  // namespace tessera::ops
