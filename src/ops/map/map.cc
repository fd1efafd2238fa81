#include "ops/map/map.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cassert>

#include "compiler/compile.h"
#include "program/cycles.h"

namespace tessera::ops {
namespace {

using machine::Kind;
using machine::Machine;
using program::Box;
using program::BoxSeries;
using program::Phase;
using program::PhaseTimes;

/// ⌈a / b⌉ for a > 0.
uint32_t ceil_divide(uint32_t a, uint32_t b) { return (a - 1) / b + 1; }

std::vector<MapPartition> candidate_partitions(uint32_t rows, uint32_t cols, uint32_t tiles) {
  std::vector<MapPartition> partitions;
  const auto add = [&](uint32_t row_parts, uint32_t col_parts) {
    const MapPartition partition = partition_evenly(rows, cols, row_parts, col_parts);
    if (std::find(partitions.begin(), partitions.end(), partition) == partitions.end())
      partitions.push_back(partition);
  };
  for (uint32_t used = 1;; used = std::min(2 * used, tiles)) {
    const uint32_t by_rows = std::clamp(rows, 1U, used);
    const uint32_t by_cols = std::clamp(cols, 1U, used);
    add(by_rows, used / by_rows);
    add(used / by_cols, by_cols);
    if (used == tiles) return partitions;
  }
}

/// The box that one tile sees of an operand.
Box operand_box(const MapOperand& operand, const Box& own) {
  Box box{0, operand.rows, 0, operand.cols};
  if (operand.split_rows) box.row = own.row, box.rows = own.rows;
  if (operand.split_cols) box.col = own.col, box.cols = own.cols;
  return box;
}

BoxSeries operand_boxes(const MapOperand& operand, const MapPartition& partition) {
  const Box first = operand_box(operand, {0, partition.rows_per_tile, 0, partition.cols_per_tile});
  return BoxSeries::grid(first, {operand.split_rows ? partition.rows_per_tile : 0, 0},
                         std::max(1U, partition.col_parts),
                         {0, operand.split_cols ? partition.cols_per_tile : 0});
}

/// Cycles of the largest vertex, which is the first, and the sync after it.
PhaseTimes superstep_cycles(const MapOperation& operation, const MapPartition& partition, const Machine& m) {
  PhaseTimes cycles;
  if (partition.tiles() > 0) {
    std::vector<program::FieldView> fields;
    for (const MapOperand& operand : operation.operands) {
      const Box box = operand_box(operand, partition.box(0));
      fields.push_back({nullptr, operand.type, box.rows, box.cols, operand.cols, 1});
    }
    cycles = operation.codelet->cost({fields, operation.params}, m);
  }
  cycles[Phase::sync] += program::sync_cycles(m, partition.tiles());
  return cycles;
}

uint64_t shared_bytes(const MapOperation& operation) {
  uint64_t bytes = 0;
  for (const MapOperand& operand : operation.operands)
    bytes += uint64_t{operand.rows} * operand.cols * size_of(operand.type);
  return bytes;
}

}  // namespace

Box MapPartition::box(program::TileId tile) const {
  const Box moved{tile / col_parts * rows_per_tile, rows_per_tile, tile % col_parts * cols_per_tile,
                  cols_per_tile};
  return intersection(moved, {0, rows, 0, cols});
}

MapPartition partition_evenly(uint32_t rows, uint32_t cols, uint32_t row_parts, uint32_t col_parts) {
  MapPartition partition{rows, cols};
  if (rows == 0 || cols == 0) return partition;
  partition.rows_per_tile = ceil_divide(rows, std::max(1U, row_parts));
  partition.cols_per_tile = ceil_divide(cols, std::max(1U, col_parts));
  partition.row_parts = ceil_divide(rows, partition.rows_per_tile);
  partition.col_parts = ceil_divide(cols, partition.cols_per_tile);
  return partition;
}

std::string to_string(const MapPartition& partition) {
  return fmt::format("{} × {} tiles, {} × {} a tile", partition.row_parts, partition.col_parts,
                     partition.rows_per_tile, partition.cols_per_tile);
}

MapPlan choose_partition(uint32_t rows, uint32_t cols, const Machine& machine,
                         const std::function<PlanCandidate(const MapPartition&)>& predict) {
  const std::vector<MapPartition> partitions = candidate_partitions(rows, cols, machine.tiles);
  const uint64_t capacity = machine.kind == Kind::host ? machine.shared_bytes : machine.tile_bytes;
  MapPlan plan;
  for (const MapPartition& partition : partitions) {
    PlanCandidate& candidate = plan.candidates.emplace_back(predict(partition));
    candidate.partition = to_string(partition);
    if (candidate.rejected.empty() && candidate.max_tile_bytes > capacity)
      candidate.rejected = fmt::format("needs {} bytes a memory of {}", candidate.max_tile_bytes, capacity);
  }
  const size_t best = choose_fastest(plan.candidates);
  plan.partition = partitions[best];
  plan.chosen = plan.candidates[best];
  return plan;
}

MapPlan plan_map(const MapOperation& operation, const Machine& machine) {
  return choose_partition(operation.rows, operation.cols, machine, [&](const MapPartition& partition) {
    if (machine.kind != Kind::host)
      return predict(partition, machine, [&](program::Program& program, const MapPlan& plan) {
        return build_map(program, operation, plan, machine).step;
      });
    PlanCandidate candidate;
    candidate.seconds = superstep_cycles(operation, partition, machine).scaled(1 / machine.clock_hz);
    candidate.max_tile_bytes = shared_bytes(operation);
    return candidate;
  });
}

PlanCandidate predict(const MapPartition& partition, const Machine& machine, const BuildStep& build) {
  program::Program program;
  program.set_main(build(program, {partition, {}, {}}));
  const compiler::Estimate counted = compiler::estimate(program, machine);
  PlanCandidate candidate;
  candidate.seconds = counted.cycles.scaled(1 / machine.clock_hz);
  candidate.max_tile_bytes = counted.memory.max_tile_bytes;
  return candidate;
}

std::vector<program::MappedBox> map_partition(const MapPartition& partition, const Machine& machine) {
  if (machine.kind == Kind::host) return program::map_shared(partition.rows, partition.cols);
  std::vector<program::MappedBox> mapping;
  for (program::TileId tile = 0; tile < partition.tiles(); ++tile)
    mapping.push_back({partition.box(tile), tile});
  return mapping;
}

BuiltOperation build_map(program::Program& program, const MapOperation& operation, const MapPlan& plan,
                         const Machine& machine) {
  const MapPartition& partition = plan.partition;
  program::VertexGroup group{operation.codelet, 0, partition.tiles(), 1, {}, {}};
  BuiltOperation built;
  for (const MapOperand& operand : operation.operands) {
    program::Variable variable{operand.name, operand.type, operand.rows,    operand.cols,
                               operand.role, {},           operand.contents};
    if (machine.kind == Kind::host) {
      variable.mapping = program::map_shared(operand.rows, operand.cols);
    } else {
      assert((operand.split_rows || partition.row_parts <= 1) &&
             (operand.split_cols || partition.col_parts <= 1));
      for (program::TileId tile = 0; tile < partition.tiles(); ++tile)
        variable.mapping.push_back({operand_box(operand, partition.box(tile)), tile});
    }
    built.operands.push_back(program.add(std::move(variable)));
    group.fields.push_back({built.operands.back(), operand_boxes(operand, partition)});
  }
  for (int64_t param : operation.params) group.params.emplace_back(param);
  program::ComputeSet set{std::string(operation.codelet->name), operation.phase, {}};
  if (partition.tiles() > 0) set.groups.push_back(std::move(group));
  built.step = program.execute(std::move(set));
  return built;
}

}  // namespace tessera::ops
