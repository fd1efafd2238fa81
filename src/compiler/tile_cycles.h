// Cycles of one superstep on the tiles that run it: computed at compile time, and again at run time if costs
// read metadata that is known only then.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "compiler/chip_clocks.h"
#include "compiler/executable.h"
#include "program/cycles.h"

namespace tessera::compiler {

/// The slowest tile of a superstep; on several chips, the slowest tile of each chip, with the fixed cost.
class SlowestTiles {
 public:
  explicit SlowestTiles(const machine::Machine& machine)
      : machine_(machine), has_chips_(machine.chip_count() > 1) {}

  /// Adds the cycles of a tile; tiles must ascend.
  void add(program::TileId tile, const program::PhaseTimes& cycles) {
    if (cycles.total() > slowest_.total()) slowest_ = cycles;
    if (!has_chips_) return;
    const uint32_t chip = machine_.chip_of(tile);
    program::PhaseTimes all = cycles;
    all[program::Phase::control] += program::superstep_cycles(machine_, 1);
    if (chips_.empty() || chips_.back().chip != chip)
      chips_.push_back({chip, all});
    else if (all.total() > chips_.back().cycles.total())
      chips_.back().cycles = all;
  }

  const program::PhaseTimes& slowest() const { return slowest_; }
  const std::vector<ChipCycles>& chips() const { return chips_; }

 private:
  const machine::Machine& machine_;
  bool has_chips_;
  program::PhaseTimes slowest_;
  std::vector<ChipCycles> chips_;
};

class TileCycles {
 public:
  explicit TileCycles(const machine::Machine& machine)
      : machine_(machine), workers_(machine.workers_per_tile) {}

  /// Cycles of the vertices of the tile at position `tile` of the set: whole-tile vertices one after another,
  /// single-worker vertices dealt round-robin to time-sliced workers, except that vertices of an ordered set
  /// that depend on each other go to the same worker. view_of(group, vertex, field) is a field as cost
  /// functions may see it: its shape, and its contents if they are metadata.
  template <class ViewOf>
  program::PhaseTimes of(const program::ComputeSet& set, const CompiledSet& compiled, size_t tile,
                         const ViewOf& view_of) {
    std::fill(workers_.begin(), workers_.end(), program::PhaseTimes{});
    program::PhaseTimes cycles;
    size_t dealt = 0;
    for (uint32_t i = compiled.tile_begin[tile]; i < compiled.tile_begin[tile + 1]; ++i) {
      const CompiledVertex& vertex = compiled.vertices[i];
      const program::VertexGroup& group = set.groups[vertex.group];
      std::array<program::FieldView, program::kMaxFields> fields;
      std::array<int64_t, program::kMaxParams> params;
      for (size_t f = 0; f < group.fields.size(); ++f) fields[f] = view_of(group, vertex, f);
      for (size_t p = 0; p < group.params.size(); ++p) params[p] = group.params[p].at(vertex.index);
      const program::PhaseTimes cost = group.codelet->cost(
          {{fields.data(), group.fields.size()}, {params.data(), group.params.size()}}, machine_);
      if (group.codelet->workers == program::Workers::whole_tile) {
        cycles += cost;
        continue;
      }
      workers_[(set.ordered ? vertex.index : dealt) % workers_.size()] += cost;
      ++dealt;
    }
    if (dealt == 0) return cycles;
    const auto longest = std::max_element(workers_.begin(), workers_.end(),
                                          [](const auto& a, const auto& b) { return a.total() < b.total(); });
    cycles += longest->scaled(static_cast<double>(workers_.size()));
    return cycles;
  }

  template <class ViewOf>
  SlowestTiles slowest(const program::ComputeSet& set, const CompiledSet& compiled, const ViewOf& view_of) {
    SlowestTiles slowest(machine_);
    for (size_t t = 0; t < compiled.tiles.size(); ++t)
      slowest.add(compiled.tiles[t], of(set, compiled, t, view_of));
    return slowest;
  }

 private:
  const machine::Machine& machine_;
  std::vector<program::PhaseTimes> workers_;
};

/// A field as cost functions see it: its shape, and its contents if it is a constant at a known row.
inline program::FieldView known_view(const program::Program& program, const program::Field& field,
                                     uint32_t vertex) {
  const program::Variable& variable = program.variable(field.variable);
  const program::Box box = field_box(program, field, vertex);
  program::FieldView view{nullptr, variable.type, box.rows, box.cols, variable.cols, 1};
  if (variable.role == program::Role::constant && !box.empty() && !field.row)
    view.data = const_cast<std::byte*>(variable.contents.get()) +
                (uint64_t{box.row} * variable.cols + box.col) * size_of(variable.type);
  return view;
}

/// Times of a superstep with its exchanges and its fixed cost; on several chips, from a common start to the
/// last end.
inline program::PhaseTimes superstep_of(const machine::Machine& machine, const CompiledSet& set,
                                        const SlowestTiles& tiles) {
  if (ChipClocks clocks(machine); !clocks.is_one_chip()) {
    clocks.run(set, tiles.chips());
    return clocks.slowest();
  }
  program::PhaseTimes slowest = tiles.slowest();
  slowest += set.before.cost.cycles;
  slowest += set.after.cost.cycles;
  slowest[program::Phase::sync] += program::sync_cycles(machine, set.tiles.size());
  slowest[program::Phase::control] += program::superstep_cycles(machine, set.tiles.size());
  return slowest;
}

}  // namespace tessera::compiler
