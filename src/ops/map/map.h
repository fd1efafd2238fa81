// Operations whose every vertex owns a box of one matrix: elementwise functions, casts, copies, reductions,
// gathers. All are partitioned, costed and built here.
#pragma once

#include <tessera/types.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "machine/model/machine.h"
#include "ops/builder.h"
#include "ops/plan.h"
#include "program/program.h"

namespace tessera::ops {

/// A partition of a rows × cols matrix into boxes of equal size, smaller at the ends, with box (i, j) on tile
/// i · col_parts + j; or into the boxes of an operand's mapping. An empty matrix has no boxes. Rows may be
/// divided in groups, so that no box has rows of two of them.
struct MapPartition {
  uint32_t rows = 0;
  uint32_t cols = 0;
  uint32_t rows_per_tile = 0;
  uint32_t cols_per_tile = 0;
  uint32_t row_parts = 0;
  uint32_t col_parts = 0;
  uint32_t row_group = 0;  ///< rows of each group, of which the last box may be smaller; 0: one group

  /// Mapping of an operand, by ascending tiles of the builder's range; empty: boxes of equal size.
  std::vector<program::MappedBox> boxes = {};

  uint32_t tiles() const;
  /// The box of a tile, clipped to the matrix; for boxes of equal size.
  program::Box box(program::TileId tile) const;
  bool operator==(const MapPartition&) const = default;
};

/// Vertices on consecutive tiles, equally many on each.
struct VertexRun {
  program::TileId first_tile = 0;
  uint32_t tiles = 0;
  uint32_t per_tile = 1;
  std::vector<program::Box> own = {};  ///< one per vertex; empty: the partition's boxes of equal size
};

/// The vertices of a partition, one for each box.
std::vector<VertexRun> vertex_runs(const MapPartition& partition);

/// A partition into at most row_parts × col_parts boxes, as equal as whole rows and columns allow.
MapPartition partition_evenly(uint32_t rows, uint32_t cols, uint32_t row_parts, uint32_t col_parts);

/// "2 × 1 tiles, 64 × 512 per tile"; "in place, 24 boxes on 8 tiles"
std::string to_string(const MapPartition& partition);

using MapPlan = Plan<MapPartition>;

/// Predicts a partition's seconds and bytes; of one that takes longer than `most_seconds` the seconds may be
/// enough, if it is rejected.
using PredictPartition = std::function<PlanCandidate(const MapPartition&, double most_seconds)>;

/// A lower bound of a partition's seconds.
using LeastSeconds = std::function<double(const MapPartition&)>;

/// Considers partitions into 1, 2, 4, … and all tiles, by rows before columns and vice versa, and
/// `as_it_lies` if it has boxes; skips a partition whose `least` is above the fastest so far. If none fits
/// the machine, the smallest is chosen. Rows are divided in groups of `row_group`, if that takes no larger
/// boxes; otherwise both ways are considered.
MapPlan choose_partition(uint32_t rows, uint32_t cols, const machine::Machine& machine,
                         const PredictPartition& predict, const MapPartition& as_it_lies = {},
                         const LeastSeconds& least = {}, uint32_t row_group = 1);

/// A matrix that an operation reads or writes, as a field of its codelet. If it follows the partition, a
/// vertex sees only its own rows or columns of it, otherwise all.
struct MapOperand {
  std::string name;
  Type type = Type::f32;
  program::Role role = program::Role::input;  ///< role in a separate program of the operation
  uint32_t rows = 0;
  uint32_t cols = 0;
  bool split_rows = true;
  bool split_cols = true;
  std::shared_ptr<const std::byte> contents = {};  ///< contents of a constant
  uint32_t rows_per_row = 1;  ///< if rows are split: number of its rows per row of the partitioned matrix,
                              ///< of which the last may have fewer
  uint32_t row_group = 1;     ///< or per group of this many rows of the partitioned matrix, of which a vertex
                              ///< has a part
  uint32_t cols_per_col = 1;  ///< if columns are split: number of its columns per column of the partitioned
                              ///< matrix
  bool transposed = false;    ///< stored as its transpose, to which all members but `rows` and `cols` refer

  bool operator==(const MapOperand&) const = default;

  /// Whether it is a constant that the operation adds itself.
  bool is_own() const { return role == program::Role::constant; }
};

/// The box of an operand that the owner of a box of the partitioned matrix processes.
program::Box operand_box(const MapOperand& operand, const program::Box& own);

/// The mapping of an operand that follows a partition into boxes of equal size: each tile has what it
/// processes.
std::vector<program::MappedBox> map_operand(const MapOperand& operand, const MapPartition& partition);

/// One compute set of one codelet over a rows × cols matrix; the last operand is the result.
struct MapOperation {
  const program::Codelet* codelet = nullptr;
  program::Phase phase = program::Phase::compute;
  uint32_t rows = 0;
  uint32_t cols = 0;
  std::vector<MapOperand> operands = {};  ///< in the order of the codelet's fields
  std::vector<int64_t> params = {};
  bool takes_origin = false;  ///< whether a vertex's last two parameters are the first row and column of its
                              ///< box

  bool operator==(const MapOperation&) const = default;
};

/// Why a candidate does not fit; empty: it does. What moves data takes code that stays for the whole program,
/// so one operation may take a small part of a tile for it, if `can_stay`: if it can do without.
std::string overflow_of(const PlanCandidate& candidate, const machine::Machine& machine, bool can_stay);

/// Plans an operation whose operands are mapped as the plan requires. Throws Error, naming operation and
/// size, if no partition fits.
MapPlan plan_map(const MapOperation& operation, const machine::Machine& machine);
/// Plans an operation with given operands, without its constants: on tiles, parts with another mapping are
/// exchanged, at a cost. Throws UsageError for operands of another type or shape. A plan that does not fit is
/// valid: its program compiles, and reports what overflows.
MapPlan plan_map(const Builder& builder, const MapOperation& operation, std::span<const Operand> operands);

/// Adds an operation's compute set on the builder's tiles. `operands` are the operation's operands in order,
/// without constants.
program::StepId build_map(const Builder& builder, const MapOperation& operation, const MapPlan& plan,
                          std::span<const Operand> operands);

/// Adds an operation's operands, without constants, as variables that the caller binds. On a tiled machine an
/// operand that follows the partition lies on the tiles that own its boxes, and is not exchanged; other
/// operands are distributed over all tiles.
std::vector<Operand> add_externals(const Builder& builder, const MapOperation& operation,
                                   const MapPartition& partition);

/// A problem that is one compute set: operation_of(problem) describes it, and throws UsageError for
/// unsupported types.
template <class Problem>
concept MapProblem = requires(const Problem& problem) {
  { operation_of(problem) } -> std::same_as<MapOperation>;
};

template <MapProblem Problem>
MapPlan plan(const Problem& problem, const machine::Machine& machine) {
  return plan_map(operation_of(problem), machine);
}
template <MapProblem Problem>
MapPlan plan(const Builder& builder, const Problem& problem, const std::vector<Operand>& operands) {
  return plan_map(builder, operation_of(problem), operands);
}
template <MapProblem Problem>
program::StepId build(const Builder& builder, const Problem& problem, const MapPlan& plan,
                      const std::vector<Operand>& operands) {
  return build_map(builder, operation_of(problem), plan, operands);
}

/// Plans and adds one operation with given operands.
template <class Problem>
program::StepId add(const Builder& builder, const Problem& problem, const std::vector<Operand>& operands) {
  return build(builder, problem, plan(builder, problem, operands), operands);
}

/// No limit for predictions.
inline constexpr double kAnySeconds = std::numeric_limits<double>::infinity();

/// Adds a plan's operation with given operands, through a builder of another program.
using BuildInPlace = std::function<program::StepId(const Builder&, const MapPlan&, std::span<const Operand>)>;

/// Cost of a partition with given operands on a tiled machine: the exact cost in a program that has these and
/// nothing else. If it takes longer than `most_seconds`, its bytes are not counted, and it is rejected.
PlanCandidate predict(const Builder& builder, const MapPartition& partition,
                      std::span<const Operand> operands, const BuildInPlace& build,
                      double most_seconds = kAnySeconds);

/// Cost of a partition of this name that is no MapPartition: `build` adds the operation with given operands.
/// Rejected if it does not fit.
PlanCandidate predict(const Builder& builder, std::string partition, std::span<const Operand> operands,
                      const std::function<program::StepId(const Builder&, std::span<const Operand>)>& build);

/// The partition into the boxes of an operand on the builder's tiles; no boxes on a host, or if a part of the
/// operand lies on other tiles.
MapPartition partition_as_it_lies(const Builder& builder, const Operand& operand);

}  // namespace tessera::ops
