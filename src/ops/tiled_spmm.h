// Y = W·X on a machine whose tiles have memories of their own.
#pragma once

#include <tessera/sparse.h>
#include <tessera/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "machine/machine.h"
#include "ops/plan.h"
#include "ops/spmm.h"
#include "program/program.h"

namespace tessera::ops {

/// A grid of row parts of equal non-zeros and column parts of equal width; tile i · column parts + j
/// computes part (i, j) of Y, from the blocks of its rows and all rows of X. The tiles of a row part
/// share out its values and exchange them.
struct TiledSpmmPlan {
  std::vector<uint32_t> row_begin;  ///< first block row of each row part, and the end
  uint32_t col_parts = 1;
  uint32_t cols = 0;  ///< of a column part, the last may have fewer
  PlanCandidate chosen;
  std::vector<PlanCandidate> candidates;

  uint32_t row_parts() const { return static_cast<uint32_t>(row_begin.size()) - 1; }
  uint32_t tiles_used() const { return row_parts() * col_parts; }
};

/// Throws UsageError for a type that tiled machines lack, and for knobs that do not exist or ask for
/// more parts than the machine has tiles.
void check_tiled_spmm(Type type, const machine::Machine& machine, const ForcedKnobs& force);

/// Weighs every grid whose parts are powers of two or all tiles, within the machine's tiles; the
/// knobs are row_parts and col_parts. Where no grid fits the memory, the one that overflows least is
/// chosen: not fitting is an answer. `type` is that of W, X and Y: f32 or f16.
TiledSpmmPlan plan_tiled_spmm(const Pattern& pattern, Type type, uint32_t n, const machine::Machine& machine,
                              const ForcedKnobs& force = {});

/// Builds the plan's program. It takes the values in the pattern's order, blocks × b².
SpmmProgram build_tiled_spmm(const Pattern& pattern, Type type, uint32_t n, const TiledSpmmPlan& plan,
                             const machine::Machine& machine);

std::string to_string(const TiledSpmmPlan& plan);

}  // namespace tessera::ops
