// Operations whose every vertex owns a box of one matrix: elementwise functions, casts, copies,
// reductions, gathers. They are cut, priced and built here, in one way.
#pragma once

#include <tessera/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "machine/model/machine.h"
#include "ops/plan.h"
#include "program/program.h"

namespace tessera::ops {

/// A rows × cols matrix in boxes of equal size, fewer at the ends; box (i, j) on tile
/// i · col_parts + j. An empty matrix has no boxes.
struct MapPartition {
  uint32_t rows = 0;
  uint32_t cols = 0;
  uint32_t rows_per_tile = 0;
  uint32_t cols_per_tile = 0;
  uint32_t row_parts = 0;
  uint32_t col_parts = 0;

  uint32_t tiles() const { return row_parts * col_parts; }
  /// The box of a tile, clipped.
  program::Box box(program::TileId tile) const;
  bool operator==(const MapPartition&) const = default;
};

/// At most row_parts × col_parts boxes, as equal as whole rows and columns allow.
MapPartition partition_evenly(uint32_t rows, uint32_t cols, uint32_t row_parts, uint32_t col_parts);

/// "2 × 1 tiles, 64 × 512 a tile"
std::string to_string(const MapPartition& partition);

/// A cut, what it is predicted to cost, and the others that were weighed.
struct MapPlan {
  MapPartition partition;
  PlanCandidate chosen;
  std::vector<PlanCandidate> candidates;
};

/// Weighs cuts into 1, 2, 4, … and all tiles, by rows before columns and the other way round.
/// predict() gives a cut's seconds and bytes. Throws Error where none fits the machine.
MapPlan choose_partition(uint32_t rows, uint32_t cols, const machine::Machine& machine,
                         const std::function<PlanCandidate(const MapPartition&)>& predict);

/// A matrix that an operation reads or writes, as a field of its codelet. Where it follows the cut,
/// a vertex sees its own rows or columns of it, else all.
struct MapOperand {
  std::string name;
  Type type = Type::f32;
  program::Role role = program::Role::input;
  uint32_t rows = 0;
  uint32_t cols = 0;
  bool split_rows = true;
  bool split_cols = true;
  std::shared_ptr<const std::byte> contents = {};  ///< of a constant
};

/// One compute set of one codelet over a rows × cols matrix.
struct MapOperation {
  const program::Codelet* codelet = nullptr;
  program::Phase phase = program::Phase::compute;
  uint32_t rows = 0;
  uint32_t cols = 0;
  std::vector<MapOperand> operands = {};  ///< in the order of the codelet's fields
  std::vector<int64_t> params = {};
};

MapPlan plan_map(const MapOperation& operation, const machine::Machine& machine);

/// What an operation added to a program: its variables, in the order of its operands, and the step
/// that computes it.
struct BuiltOperation {
  std::vector<program::VariableId> operands;
  program::StepId step = program::kNoStep;
};

/// Adds variables and compute set to a program. On a tiled machine each operand lies on the tiles
/// that own its boxes, so nothing is exchanged; every operand must then follow the cut.
BuiltOperation build_map(program::Program& program, const MapOperation& operation, const MapPlan& plan,
                         const machine::Machine& machine);

/// Adds what a plan builds to a program, and returns its step.
using BuildStep = std::function<program::StepId(program::Program&, const MapPlan&)>;

/// What a cut costs on a tiled machine: what the compiler counts of what is built for it.
PlanCandidate predict(const MapPartition& partition, const machine::Machine& machine, const BuildStep& build);

/// Where the boxes of a cut lie: on their tiles, or in a host's shared space.
std::vector<program::MappedBox> map_partition(const MapPartition& partition, const machine::Machine& machine);

}  // namespace tessera::ops
