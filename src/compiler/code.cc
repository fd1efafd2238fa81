#include <fmt/format.h>

#include <algorithm>

#include "compiler/passes.h"
#include "program/sizes.h"
#include "program/traffic.h"

namespace tessera::compiler {
namespace {

using program::TileId;

/// Vertices, code and stacks of every tile of a machine whose tiles have memories of their own.
class CodeCount {
 public:
  explicit CodeCount(Compilation& c) : c_(c), traffic_(c.machine) {}

  void count() {
    for (size_t s = 0; s < c_.sets.size(); ++s) {
      SetPieces& set = c_.sets[s];
      if (!set.reached) continue;
      count_vertices(c_.program.compute_sets()[s], set);
      count_exchange(set.before);
      count_exchange(set.after);
    }
    for (Moves& moves : c_.copies)
      if (moves.reached) count_exchange(moves);
    count_codelets();
    for (TileId tile = 0; tile < c_.machine.tiles; ++tile)
      c_.memory[tile][MemoryUse::stack] = program::kStackBytes;
  }

  uint64_t exchange_bytes() const { return exchange_bytes_; }

 private:
  /// The vertices of a tile lie side by side, in the order of their groups.
  void count_vertices(const program::ComputeSet& source, const SetPieces& set) {
    for (size_t i = 0; i < set.vertices.size();) {
      const TileId tile = set.tile_of[i];
      uint32_t groups = 0;
      for (size_t first = i; i < set.vertices.size() && set.tile_of[i] == tile; ++i) {
        const program::Codelet* codelet = source.groups[set.vertices[i].group].codelet;
        c_.memory[tile][MemoryUse::vertex_state] += program::vertex_state_bytes(*codelet);
        if (i != first && set.vertices[i].group == set.vertices[i - 1].group) continue;
        ++groups;
        codelets_.emplace_back(tile, codelet);
      }
      c_.memory[tile][MemoryUse::control_code] += program::control_code_bytes(groups);
    }
  }

  void count_exchange(Moves& moves) {
    if (moves.moves.empty()) return;
    for (const Move& move : moves.moves) {
      const Piece& from = c_.pieces[move.from];
      traffic_.add(from.tile, c_.pieces[move.to].tile, from.variable, move.from_box,
                   size_of(c_.program.variable(from.variable).type), move.gathered);
    }
    traffic_.count();
    moves.cost.cycles = traffic_.cycles();
    moves.cost.bytes = traffic_.sent_bytes();
    exchange_bytes_ += moves.cost.bytes;
    moves.cost.tiles.least = program::traffic_cycles(c_.machine, traffic_.of(0));
    for (TileId tile = 0; tile < c_.machine.tiles; ++tile) {
      c_.memory[tile][MemoryUse::exchange_code] += traffic_.code_bytes(tile);
      add(program::traffic_cycles(c_.machine, traffic_.of(tile)), moves.cost.tiles);
    }
  }

  void add(double cycles, Balance& balance) const {
    balance.least = std::min(balance.least, cycles);
    balance.mean += cycles / c_.machine.tiles;
    balance.most = std::max(balance.most, cycles);
  }

  void count_codelets() {
    std::sort(codelets_.begin(), codelets_.end());
    codelets_.erase(std::unique(codelets_.begin(), codelets_.end()), codelets_.end());
    for (const auto& [tile, codelet] : codelets_)
      c_.memory[tile][MemoryUse::vertex_code] += codelet->code_bytes;
  }

  Compilation& c_;
  program::Traffic traffic_;
  uint64_t exchange_bytes_ = 0;
  std::vector<std::pair<TileId, const program::Codelet*>> codelets_;
};

}  // namespace

std::string count_code(Compilation& c) {
  c.memory.assign(size_t{c.machine.tiles} + 1, {});
  if (!is_tiled(c)) return "a host has no exchange";
  CodeCount count(c);
  count.count();
  return fmt::format("exchanges send {} bytes", count.exchange_bytes());
}

}  // namespace tessera::compiler
