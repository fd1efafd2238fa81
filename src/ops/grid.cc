#include "ops/grid.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cassert>

#include "ops/tally.h"
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

std::vector<GridCut> candidate_cuts(uint32_t rows, uint32_t cols, uint32_t tiles) {
  std::vector<GridCut> cuts;
  const auto add = [&](uint32_t row_parts, uint32_t col_parts) {
    const GridCut cut = cut_grid(rows, cols, row_parts, col_parts);
    if (std::find(cuts.begin(), cuts.end(), cut) == cuts.end()) cuts.push_back(cut);
  };
  for (uint32_t used = 1;; used = std::min(2 * used, tiles)) {
    const uint32_t by_rows = std::clamp(rows, 1U, used);
    const uint32_t by_cols = std::clamp(cols, 1U, used);
    add(by_rows, used / by_rows);
    add(used / by_cols, by_cols);
    if (used == tiles) return cuts;
  }
}

/// The box that one tile sees of an operand.
Box operand_box(const GridOperand& operand, const Box& own) {
  Box box{0, operand.rows, 0, operand.cols};
  if (operand.cut_rows) box.row = own.row, box.rows = own.rows;
  if (operand.cut_cols) box.col = own.col, box.cols = own.cols;
  return box;
}

BoxSeries operand_boxes(const GridOperand& operand, const GridCut& cut) {
  const Box first = operand_box(operand, {0, cut.rows_per_tile, 0, cut.cols_per_tile});
  return BoxSeries::grid(first, {operand.cut_rows ? cut.rows_per_tile : 0, 0}, std::max(1U, cut.col_parts),
                         {0, operand.cut_cols ? cut.cols_per_tile : 0});
}

/// Cycles of the largest vertex, which is the first, and the sync after it.
PhaseTimes superstep_cycles(const GridOperation& operation, const GridCut& cut, const Machine& m) {
  PhaseTimes cycles;
  if (cut.tiles() > 0) {
    std::vector<program::FieldView> fields;
    for (const GridOperand& operand : operation.operands) {
      const Box box = operand_box(operand, cut.box(0));
      fields.push_back({nullptr, operand.type, box.rows, box.cols, operand.cols, 1});
    }
    cycles = operation.codelet->cost({fields, operation.params}, m);
  }
  cycles[Phase::sync] += program::sync_cycles(m, cut.tiles());
  return cycles;
}

uint64_t shared_bytes(const GridOperation& operation) {
  uint64_t bytes = 0;
  for (const GridOperand& operand : operation.operands)
    bytes += uint64_t{operand.rows} * operand.cols * size_of(operand.type);
  return bytes;
}

}  // namespace

Box GridCut::box(program::TileId tile) const {
  const Box moved{tile / col_parts * rows_per_tile, rows_per_tile, tile % col_parts * cols_per_tile,
                  cols_per_tile};
  return intersection(moved, {0, rows, 0, cols});
}

GridCut cut_grid(uint32_t rows, uint32_t cols, uint32_t row_parts, uint32_t col_parts) {
  GridCut cut{rows, cols};
  if (rows == 0 || cols == 0) return cut;
  cut.rows_per_tile = ceil_divide(rows, std::max(1U, row_parts));
  cut.cols_per_tile = ceil_divide(cols, std::max(1U, col_parts));
  cut.row_parts = ceil_divide(rows, cut.rows_per_tile);
  cut.col_parts = ceil_divide(cols, cut.cols_per_tile);
  return cut;
}

std::string to_string(const GridCut& cut) {
  return fmt::format("{} × {} tiles, {} × {} a tile", cut.row_parts, cut.col_parts, cut.rows_per_tile,
                     cut.cols_per_tile);
}

GridPlan choose_cut(uint32_t rows, uint32_t cols, const Machine& machine,
                    const std::function<PlanCandidate(const GridCut&)>& predict) {
  const std::vector<GridCut> cuts = candidate_cuts(rows, cols, machine.tiles);
  const uint64_t capacity = machine.kind == Kind::host ? machine.shared_bytes : machine.tile_bytes;
  GridPlan plan;
  for (const GridCut& cut : cuts) {
    PlanCandidate& candidate = plan.candidates.emplace_back(predict(cut));
    candidate.cut = to_string(cut);
    if (candidate.rejected.empty() && candidate.max_tile_bytes > capacity)
      candidate.rejected = fmt::format("needs {} bytes a memory of {}", candidate.max_tile_bytes, capacity);
  }
  const size_t best = choose_fastest(plan.candidates);
  plan.cut = cuts[best];
  plan.chosen = plan.candidates[best];
  return plan;
}

GridPlan plan_grid(const GridOperation& operation, const Machine& machine) {
  return choose_cut(operation.rows, operation.cols, machine, [&](const GridCut& cut) {
    if (machine.kind != Kind::host)
      return predict(cut, machine, [&](program::Program& program, const GridPlan& plan) {
        return build_grid(program, operation, plan, machine).step;
      });
    PlanCandidate candidate;
    candidate.seconds = superstep_cycles(operation, cut, machine).scaled(1 / machine.clock_hz);
    candidate.max_tile_bytes = shared_bytes(operation);
    return candidate;
  });
}

PlanCandidate predict(const GridCut& cut, const Machine& machine, const BuildStep& build) {
  program::Program program;
  program.set_main(build(program, {cut, {}, {}}));
  const Tally counted = tally(program, machine);
  PlanCandidate candidate;
  candidate.seconds = counted.cycles.scaled(1 / machine.clock_hz);
  candidate.max_tile_bytes = counted.max_tile_bytes;
  return candidate;
}

std::vector<program::MappedBox> map_grid(const GridCut& cut, const Machine& machine) {
  if (machine.kind == Kind::host) return program::map_shared(cut.rows, cut.cols);
  std::vector<program::MappedBox> mapping;
  for (program::TileId tile = 0; tile < cut.tiles(); ++tile) mapping.push_back({cut.box(tile), tile});
  return mapping;
}

BuiltOperation build_grid(program::Program& program, const GridOperation& operation, const GridPlan& plan,
                          const Machine& machine) {
  const GridCut& cut = plan.cut;
  program::VertexGroup group{operation.codelet, 0, cut.tiles(), 1, {}, {}};
  BuiltOperation built;
  for (const GridOperand& operand : operation.operands) {
    program::Variable variable{operand.name, operand.type, operand.rows,    operand.cols,
                               operand.role, {},           operand.contents};
    if (machine.kind == Kind::host) {
      variable.mapping = program::map_shared(operand.rows, operand.cols);
    } else {
      assert((operand.cut_rows || cut.row_parts <= 1) && (operand.cut_cols || cut.col_parts <= 1));
      for (program::TileId tile = 0; tile < cut.tiles(); ++tile)
        variable.mapping.push_back({operand_box(operand, cut.box(tile)), tile});
    }
    built.operands.push_back(program.add(std::move(variable)));
    group.fields.push_back({built.operands.back(), operand_boxes(operand, cut)});
  }
  for (int64_t param : operation.params) group.params.emplace_back(param);
  program::ComputeSet set{std::string(operation.codelet->name), operation.phase, {}};
  if (cut.tiles() > 0) set.groups.push_back(std::move(group));
  built.step = program.execute(std::move(set));
  return built;
}

}  // namespace tessera::ops
