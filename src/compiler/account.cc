#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "compiler/passes.h"
#include "program/sizes.h"

namespace tessera::compiler {
namespace {

using program::Phase;
using program::PhaseTimes;
using program::Role;
using program::TileId;
using program::Variable;

bool is_tiled(const Compilation& c) { return c.machine.kind == machine::Kind::tiled; }

std::string category_of(const Variable& variable) {
  switch (variable.role) {
    case Role::constant: return "constants";
    case Role::input: return "inputs";
    case Role::output:
    case Role::inout: return "outputs";
    case Role::temporary: return "temporaries";
  }
  return "temporaries";
}

/// A field as a cost function sees it: shape, and contents where it is a constant.
program::FieldView view_of(const Compilation& c, const program::Field& field, uint32_t vertex) {
  const Variable& variable = c.program.variable(field.variable);
  const program::Box box = field_box(c.program, field, vertex);
  program::FieldView view;
  view.type = variable.type;
  view.rows = box.rows;
  view.cols = box.cols;
  view.row_stride = variable.cols;
  if (variable.role == Role::constant && !box.empty())
    view.data = const_cast<std::byte*>(variable.contents.get()) +
                (uint64_t{box.row} * variable.cols + box.col) * size_of(variable.type);
  return view;
}

PhaseTimes cost_of(const Compilation& c, const program::VertexGroup& group, uint32_t index) {
  std::vector<program::FieldView> fields;
  for (const program::Field& field : group.fields) fields.push_back(view_of(c, field, index));
  std::vector<int64_t> params;
  for (const program::Param& param : group.params) params.push_back(param.at(index));
  return group.codelet->cost({fields, params}, c.machine);
}

/// Cycles of one tile in a compute set: whole-tile vertices one after another, single-worker ones
/// dealt round-robin to workers that are time-sliced.
PhaseTimes tile_cycles(const Compilation& c, const program::ComputeSet& set, const CompiledSet& compiled,
                       size_t tile) {
  const uint32_t workers = c.machine.workers_per_tile;
  std::vector<PhaseTimes> worker(workers);
  PhaseTimes cycles;
  uint32_t dealt = 0;
  for (uint32_t i = compiled.tile_begin[tile]; i < compiled.tile_begin[tile + 1]; ++i) {
    const program::VertexGroup& group = set.groups[compiled.vertices[i].group];
    const PhaseTimes cost = cost_of(c, group, compiled.vertices[i].index);
    if (group.codelet->workers == program::Workers::whole_tile)
      cycles += cost;
    else
      worker[dealt++ % workers] += cost;
  }
  const auto longest = std::max_element(worker.begin(), worker.end(), [](const auto& a, const auto& b) {
    return a.total() < b.total();
  });
  cycles += longest->scaled(workers);
  return cycles;
}

double exchange_cycles(const machine::Machine& m, const Exchange& exchange) {
  if (m.kind == machine::Kind::host || exchange.empty()) return 0;
  struct Traffic {
    double in = 0;
    double out = 0;
    double local = 0;
  };
  std::unordered_map<TileId, Traffic> traffic;
  for (const Transfer& t : exchange.transfers) {
    const double bytes = static_cast<double>(t.from.rows) * t.from.cols * size_of(t.type);
    if (t.from.space == t.to.space) {
      traffic[t.from.space].local += bytes;
    } else {
      traffic[t.from.space].out += bytes;
      traffic[t.to.space].in += bytes;
    }
  }
  double longest = 0;
  for (const auto& [tile, t] : traffic)
    longest = std::max(longest, std::max(t.in, t.out) / m.exchange_bytes_per_cycle +
                                    t.local / m.load_bytes_per_cycle);
  return m.exchange_cycles + m.sync_cycles + longest;
}

void count_cycles(Compilation& c) {
  for (size_t s = 0; s < c.sets.size(); ++s) {
    CompiledSet& compiled = c.executable->sets[s];
    PhaseTimes slowest;
    for (size_t t = 0; t < compiled.tiles.size(); ++t) {
      const PhaseTimes cycles = tile_cycles(c, c.program.compute_sets()[s], compiled, t);
      if (cycles.total() > slowest.total()) slowest = cycles;
    }
    compiled.before.cycles = exchange_cycles(c.machine, compiled.before);
    compiled.after.cycles = exchange_cycles(c.machine, compiled.after);
    slowest[Phase::exchange] += compiled.before.cycles + compiled.after.cycles;
    slowest[Phase::sync] += is_tiled(c) ? c.machine.sync_cycles
                                        : c.machine.figures.barrier_seconds * c.machine.clock_hz;
    c.executable->set_cycles.push_back(slowest);
  }
  for (Exchange& exchange : c.executable->copies) exchange.cycles = exchange_cycles(c.machine, exchange);
}

/// Bytes by category of every space.
class MemoryCount {
 public:
  explicit MemoryCount(const Compilation& c) : c_(c) {}

  MemoryReport report() {
    count_always_live();
    count_temporaries();
    if (is_tiled(c_)) count_code();
    MemoryReport report;
    report.tile_capacity_bytes = is_tiled(c_) ? c_.machine.tile_bytes : c_.machine.shared_bytes;
    for (const auto& [tile, categories] : spaces_) {
      uint64_t bytes = 0;
      for (const auto& [name, b] : categories) {
        bytes += b;
        report.total[name] += b;
      }
      report.total_bytes += bytes;
      if (bytes <= report.max_tile_bytes) continue;
      report.max_tile_bytes = bytes;
      report.fullest_tile = tile;
      report.fullest = categories;
    }
    return report;
  }

 private:
  void count_always_live() {
    for (const Piece& piece : c_.pieces)
      if (piece.always_live) {
        const Variable& variable = c_.program.variable(piece.variable);
        const uint64_t bytes = piece.box.elements() * size_of(variable.type);
        spaces_[piece.tile][category_of(variable)] += bytes;
        if (piece.tile != program::kShared) placed_[piece.tile] += bytes;
      }
  }

  void count_temporaries() {
    for (const auto& [tile, bytes] : c_.executable->arena_bytes) {
      const uint64_t always = placed_[tile];
      if (bytes > always) spaces_[tile]["temporaries"] += bytes - always;
    }
  }

  void count_code() {
    std::map<TileId, std::set<const program::Codelet*>> codelets;
    for (size_t s = 0; s < c_.sets.size(); ++s) {
      const CompiledSet& set = c_.executable->sets[s];
      for (size_t t = 0; t < set.tiles.size(); ++t) {
        Categories& tile = spaces_[set.tiles[t]];
        std::set<uint32_t> groups;
        for (uint32_t i = set.tile_begin[t]; i < set.tile_begin[t + 1]; ++i) {
          const program::VertexGroup& group = c_.program.compute_sets()[s].groups[set.vertices[i].group];
          tile["vertex state"] += program::vertex_state_bytes(*group.codelet);
          codelets[set.tiles[t]].insert(group.codelet);
          groups.insert(set.vertices[i].group);
        }
        tile["control code"] += program::control_code_bytes(static_cast<uint32_t>(groups.size()));
      }
      count_exchange_code(set.before);
      count_exchange_code(set.after);
    }
    for (const Exchange& exchange : c_.executable->copies) count_exchange_code(exchange);
    for (const auto& [tile, used] : codelets)
      for (const program::Codelet* codelet : used) spaces_[tile]["vertex code"] += codelet->code_bytes;
    for (auto& [tile, categories] : spaces_) categories["stack"] = program::kStackBytes;
  }

  void count_exchange_code(const Exchange& exchange) {
    for (const Transfer& t : exchange.transfers)
      for (TileId tile : {t.from.space, t.to.space})
        spaces_[tile]["exchange code"] += program::kExchangeCodeBytes;
  }

  const Compilation& c_;
  std::map<TileId, Categories> spaces_;
  std::map<TileId, uint64_t> placed_;
};

}  // namespace

std::string account(Compilation& c) {
  count_cycles(c);
  c.executable->memory = MemoryCount(c).report();
  const MemoryReport& memory = c.executable->memory;
  return fmt::format("fullest tile {} of {} bytes", memory.max_tile_bytes, memory.tile_capacity_bytes);
}

}  // namespace tessera::compiler
