#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "compiler/passes.h"
#include "program/cycles.h"

namespace tessera::compiler {
namespace {

using program::Phase;
using program::PhaseTimes;
using program::Role;
using program::TileId;
using program::Variable;
using program::VertexGroup;

/// Cycles of supersteps and exchanges, from the costs of codelets and the rates of the machine.
class CycleCount {
 public:
  explicit CycleCount(Compilation& c) : c_(c), workers_(c.machine.workers_per_tile) {}

  void count() {
    c_.executable->set_cycles.reserve(c_.sets.size());
    for (size_t s = 0; s < c_.sets.size(); ++s) count(c_.program.compute_sets()[s], c_.executable->sets[s]);
  }

 private:
  void count(const program::ComputeSet& set, CompiledSet& compiled) {
    PhaseTimes slowest;
    compiled.tile_cycles.reserve(compiled.tiles.size());
    for (size_t t = 0; t < compiled.tiles.size(); ++t) {
      const PhaseTimes cycles = tile_cycles(set, compiled, t);
      compiled.tile_cycles.push_back(static_cast<float>(cycles.total()));
      if (cycles.total() > slowest.total()) slowest = cycles;
    }
    compiled.balance = balance_of(compiled, slowest.total());
    slowest += compiled.before.cost.cycles;
    slowest += compiled.after.cost.cycles;
    slowest[Phase::sync] += program::sync_cycles(c_.machine, compiled.tiles.size());
    slowest[Phase::control] += program::superstep_cycles(c_.machine, compiled.tiles.size());
    c_.executable->set_cycles.push_back(slowest);
  }

  /// Tiles without vertices have nothing to do.
  Balance balance_of(const CompiledSet& set, double most) const {
    Balance balance{0, 0, most};
    for (const double cycles : set.tile_cycles) balance.mean += cycles / c_.machine.tiles;
    if (set.tiles.size() == c_.machine.tiles)
      balance.least = *std::min_element(set.tile_cycles.begin(), set.tile_cycles.end());
    return balance;
  }

  /// Whole-tile vertices one after another, single-worker ones dealt round-robin to workers that
  /// are time-sliced.
  PhaseTimes tile_cycles(const program::ComputeSet& set, const CompiledSet& compiled, size_t tile) {
    std::fill(workers_.begin(), workers_.end(), PhaseTimes{});
    PhaseTimes cycles;
    size_t dealt = 0;
    for (uint32_t i = compiled.tile_begin[tile]; i < compiled.tile_begin[tile + 1]; ++i) {
      const VertexGroup& group = set.groups[compiled.vertices[i].group];
      const PhaseTimes cost = cost_of(group, compiled.vertices[i].index);
      if (group.codelet->workers == program::Workers::whole_tile)
        cycles += cost;
      else
        workers_[dealt++ % workers_.size()] += cost;
    }
    if (dealt == 0) return cycles;
    const auto longest = std::max_element(workers_.begin(), workers_.end(), [](const auto& a, const auto& b) {
      return a.total() < b.total();
    });
    cycles += longest->scaled(static_cast<double>(workers_.size()));
    return cycles;
  }

  PhaseTimes cost_of(const VertexGroup& group, uint32_t index) {
    std::array<program::FieldView, program::kMaxFields> fields;
    std::array<int64_t, program::kMaxParams> params;
    for (size_t f = 0; f < group.fields.size(); ++f) fields[f] = view_of(group.fields[f], index);
    for (size_t p = 0; p < group.params.size(); ++p) params[p] = group.params[p].at(index);
    return group.codelet->cost({{fields.data(), group.fields.size()}, {params.data(), group.params.size()}},
                               c_.machine);
  }

  /// A field as a cost function sees it: shape, and contents where it is a constant.
  program::FieldView view_of(const program::Field& field, uint32_t vertex) const {
    const Variable& variable = c_.program.variable(field.variable);
    const program::Box box = intersection(field.boxes.at(vertex), variable.whole());
    program::FieldView view{nullptr, variable.type, box.rows, box.cols, variable.cols, 1};
    if (variable.role == Role::constant && !box.empty())
      view.data = const_cast<std::byte*>(variable.contents.get()) +
                  (uint64_t{box.row} * variable.cols + box.col) * size_of(variable.type);
    return view;
  }

  Compilation& c_;
  std::vector<PhaseTimes> workers_;
};

MemoryReport report_tiles(const Compilation& c) {
  return report_memory({c.memory.begin(), c.memory.end() - 1}, c.memory.back(), c.machine.tile_bytes);
}

/// All spaces of a host are main memory.
MemoryReport report_host(const Compilation& c) {
  TileMemory all;
  for (const TileMemory& memory : c.memory) all += memory;
  all.end = all.total();
  MemoryReport report = report_memory({all}, {}, c.machine.shared_bytes);
  report.fullest_tile = program::kShared;
  return report;
}

}  // namespace

std::string account(Compilation& c) {
  CycleCount(c).count();
  MemoryReport& memory = c.executable->memory;
  memory = is_tiled(c) ? report_tiles(c) : report_host(c);
  return fmt::format("fullest tile {} of {} bytes", memory.max_tile_bytes, memory.tile_capacity_bytes);
}

}  // namespace tessera::compiler
