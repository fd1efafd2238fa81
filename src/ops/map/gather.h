// Data movement: gathered rows, and copies of matrices between layouts.
#pragma once

#include <vector>

#include "ops/map/map.h"

namespace tessera::ops {

/// out[i] = source[rows[i]]: a list known when the program is built. source_rows × cols to
/// rows.size() × cols, of any type.
struct GatherProblem {
  Type type = Type::f32;
  uint32_t source_rows = 0;
  uint32_t cols = 0;
  std::vector<uint32_t> rows;
};

/// out = in, rows × cols of any type; the caller's strides may differ.
struct CopyProblem {
  Type type = Type::f32;
  uint32_t rows = 0;
  uint32_t cols = 0;
};

/// The cut is that of "out". Throws UsageError for a row that the source does not have.
MapPlan plan(const GatherProblem& problem, const machine::Machine& machine);
MapPlan plan(const CopyProblem& problem, const machine::Machine& machine);

/// Adds external variables "source" and "out", or "in" and "out", and the step. Operands are these
/// two; on a tiled machine the source lies spread over all tiles, and gathering is an exchange.
BuiltOperation build(program::Program& program, const GatherProblem& problem, const MapPlan& plan,
                     const machine::Machine& machine);
BuiltOperation build(program::Program& program, const CopyProblem& problem, const MapPlan& plan,
                     const machine::Machine& machine);

}  // namespace tessera::ops
