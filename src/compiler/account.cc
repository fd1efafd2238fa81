#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "compiler/passes.h"
#include "program/cycles.h"
#include "program/sizes.h"

namespace tessera::compiler {
namespace {

using program::Phase;
using program::PhaseTimes;
using program::Role;
using program::TileId;
using program::Variable;
using program::VertexGroup;

bool is_tiled(const Compilation& c) { return c.machine.kind == machine::Kind::tiled; }

/// Lists of one entry for each tile and one, the last, for the shared space.
size_t slots(const Compilation& c) { return size_t{c.machine.tiles} + 1; }
size_t slot(const Compilation& c, TileId tile) { return tile == program::kShared ? c.machine.tiles : tile; }

/// Cycles of supersteps and exchanges, from the costs of codelets and the rates of the machine.
class CycleCount {
 public:
  explicit CycleCount(Compilation& c) : c_(c), workers_(c.machine.workers_per_tile), traffic_(slots(c)) {}

  void count() {
    c_.executable->set_cycles.reserve(c_.sets.size());
    for (size_t s = 0; s < c_.sets.size(); ++s) count(c_.program.compute_sets()[s], c_.executable->sets[s]);
    for (Exchange& exchange : c_.executable->copies) exchange.cycles = cycles_of(exchange);
  }

 private:
  void count(const program::ComputeSet& set, CompiledSet& compiled) {
    PhaseTimes slowest;
    for (size_t t = 0; t < compiled.tiles.size(); ++t) {
      const PhaseTimes cycles = tile_cycles(set, compiled, t);
      if (cycles.total() > slowest.total()) slowest = cycles;
    }
    compiled.before.cycles = cycles_of(compiled.before);
    compiled.after.cycles = cycles_of(compiled.after);
    slowest[Phase::exchange] += compiled.before.cycles + compiled.after.cycles;
    slowest[Phase::sync] += program::sync_cycles(c_.machine, compiled.tiles.size());
    c_.executable->set_cycles.push_back(slowest);
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

  /// As long as its busiest tile sends, receives or copies.
  double cycles_of(const Exchange& exchange) {
    if (!is_tiled(c_) || exchange.empty()) return 0;
    std::fill(traffic_.begin(), traffic_.end(), Traffic{});
    for (const Transfer& t : exchange.transfers) {
      const auto bytes = static_cast<double>(t.bytes());
      Traffic& from = traffic_[slot(c_, t.from.tile())];
      Traffic& to = traffic_[slot(c_, t.to.tile())];
      if (&from == &to) {
        from.local += bytes;
      } else {
        from.out += bytes;
        to.in += bytes;
      }
    }
    const machine::Machine& m = c_.machine;
    double longest = 0;
    for (const Traffic& t : traffic_) longest = std::max(longest, program::traffic_cycles(m, t));
    return program::exchange_overhead_cycles(m) + longest;
  }

  using Traffic = program::TileTraffic;

  Compilation& c_;
  std::vector<PhaseTimes> workers_;
  std::vector<Traffic> traffic_;
};

enum Category : uint8_t {
  kInputs, kOutputs, kConstants, kTemporaries, kVertexState, kVertexCode, kControlCode, kExchangeCode,
  kStack, kCategories,
};
constexpr std::array<std::string_view, kCategories> kCategoryNames = {
    "inputs", "outputs", "constants", "temporaries", "vertex state", "vertex code", "control code",
    "exchange code", "stack"};

Category category_of(const Variable& variable) {
  switch (variable.role) {
    case Role::constant: return kConstants;
    case Role::input: return kInputs;
    case Role::output:
    case Role::inout: return kOutputs;
    case Role::temporary: return kTemporaries;
  }
  return kTemporaries;
}

/// Bytes by category of every space.
class MemoryCount {
 public:
  explicit MemoryCount(const Compilation& c) : c_(c), spaces_(slots(c)), bound_(slots(c)) {}

  MemoryReport report() {
    count_always_live();
    count_temporaries();
    if (is_tiled(c_)) count_code();
    MemoryReport report;
    report.tile_capacity_bytes = is_tiled(c_) ? c_.machine.tile_bytes : c_.machine.shared_bytes;
    Bytes total{};
    size_t fullest = 0;
    for (size_t i = 0; i < spaces_.size(); ++i) {
      uint64_t bytes = 0;
      for (size_t k = 0; k < kCategories; ++k) {
        bytes += spaces_[i][k];
        total[k] += spaces_[i][k];
      }
      report.total_bytes += bytes;
      // A shared space beside tiles has room of its own.
      if (bytes <= report.max_tile_bytes || (is_tiled(c_) && i == c_.machine.tiles)) continue;
      report.max_tile_bytes = bytes;
      fullest = i;
    }
    report.total = named(total);
    report.fullest_tile = fullest == c_.machine.tiles ? program::kShared : static_cast<TileId>(fullest);
    report.fullest = named(spaces_[fullest]);
    if (!is_tiled(c_)) {  // all spaces of a host are main memory
      report.max_tile_bytes = report.total_bytes;
      report.fullest_tile = program::kShared;
      report.fullest = report.total;
    }
    return report;
  }

 private:
  using Bytes = std::array<uint64_t, kCategories>;

  static Categories named(const Bytes& bytes) {
    Categories names;
    for (size_t k = 0; k < kCategories; ++k)
      if (bytes[k] != 0) names[std::string(kCategoryNames[k])] = bytes[k];
    return names;
  }

  Bytes& at(TileId tile) { return spaces_[slot(c_, tile)]; }

  void count_always_live() {
    for (const Piece& piece : c_.pieces)
      if (piece.always_live) {
        const Variable& variable = c_.program.variable(piece.variable);
        const uint64_t bytes = piece.box.elements() * size_of(variable.type);
        at(piece.tile)[category_of(variable)] += bytes;
        if (piece.tile != program::kShared) bound_[piece.tile] += bytes;
      }
  }

  void count_temporaries() {
    for (const auto& [tile, bytes] : c_.executable->arena_bytes)
      at(tile)[kTemporaries] += bytes - std::min(bytes, bound_[slot(c_, tile)]);
  }

  void count_code() {
    for (size_t s = 0; s < c_.sets.size(); ++s) {
      const CompiledSet& set = c_.executable->sets[s];
      for (size_t t = 0; t < set.tiles.size(); ++t) count_code(c_.program.compute_sets()[s], set, t);
      count_exchange_code(set.before);
      count_exchange_code(set.after);
    }
    for (const Exchange& exchange : c_.executable->copies) count_exchange_code(exchange);
    count_vertex_code();
    for (TileId tile = 0; tile < c_.machine.tiles; ++tile) at(tile)[kStack] = program::kStackBytes;
  }

  /// The vertices of a tile lie in the order of their groups.
  void count_code(const program::ComputeSet& source, const CompiledSet& set, size_t t) {
    Bytes& bytes = at(set.tiles[t]);
    uint32_t groups = 0;
    for (uint32_t i = set.tile_begin[t]; i < set.tile_begin[t + 1]; ++i) {
      const uint32_t group = set.vertices[i].group;
      const program::Codelet* codelet = source.groups[group].codelet;
      bytes[kVertexState] += program::vertex_state_bytes(*codelet);
      if (i != set.tile_begin[t] && set.vertices[i - 1].group == group) continue;
      ++groups;
      codelets_.emplace_back(set.tiles[t], codelet);
    }
    bytes[kControlCode] += program::control_code_bytes(groups);
  }

  /// Each codelet once on every tile that runs it.
  void count_vertex_code() {
    std::sort(codelets_.begin(), codelets_.end());
    codelets_.erase(std::unique(codelets_.begin(), codelets_.end()), codelets_.end());
    for (const auto& [tile, codelet] : codelets_) at(tile)[kVertexCode] += codelet->code_bytes;
  }

  void count_exchange_code(const Exchange& exchange) {
    for (const Transfer& t : exchange.transfers)
      for (TileId tile : {t.from.tile(), t.to.tile()})
        if (tile != program::kShared) at(tile)[kExchangeCode] += program::kExchangeCodeBytes;
  }

  const Compilation& c_;
  std::vector<Bytes> spaces_;
  std::vector<uint64_t> bound_;  ///< of what is always alive in an arena
  std::vector<std::pair<TileId, const program::Codelet*>> codelets_;
};

}  // namespace

std::string account(Compilation& c) {
  CycleCount(c).count();
  c.executable->memory = MemoryCount(c).report();
  const MemoryReport& memory = c.executable->memory;
  return fmt::format("fullest tile {} of {} bytes", memory.max_tile_bytes, memory.tile_capacity_bytes);
}

}  // namespace tessera::compiler
