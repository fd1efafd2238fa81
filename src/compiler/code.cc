#include <fmt/format.h>

#include <algorithm>

#include "compiler/collective_cost.h"
#include "compiler/passes.h"
#include "program/sizes.h"

namespace tessera::compiler {
namespace {

using program::TileId;

/// Vertices, code and stacks of every tile of a machine whose tiles have their own memories.
class CodeCount {
 public:
  explicit CodeCount(Compilation& c) : c_(c) {}

  void count() {
    for (TileId tile = 0; tile < c_.machine.tiles; ++tile)
      c_.memory[tile][MemoryUse::stack] = program::kStackBytes;
    for (size_t s = 0; s < c_.sets.size(); ++s)
      count_vertices(c_.program.compute_sets()[s], c_.executable->sets[s]);
    count_codelets();
    for (const program::Collective& collective : c_.program.collectives())
      compiler::count_code(c_.program, collective, c_.memory);
  }

  size_t codelets() const { return codelets_.size(); }

 private:
  /// Whether a vertex is not the first of its group on its tile, which begins with vertex `first`.
  static bool continues_group(const program::ComputeSet& source, const CompiledSet& set, uint32_t first,
                              uint32_t i) {
    return source.ordered ? set.vertices[i].index != set.vertices[first].index
                          : set.vertices[i].group == set.vertices[i - 1].group;
  }

  /// The vertices of a tile are adjacent: in the order of their groups, or of their indices if the set is
  /// ordered.
  void count_vertices(const program::ComputeSet& source, const CompiledSet& set) {
    for (size_t t = 0; t < set.tiles.size(); ++t) {
      const TileId tile = set.tiles[t];
      uint32_t groups = 0;
      for (uint32_t i = set.tile_begin[t]; i < set.tile_begin[t + 1]; ++i) {
        const program::Codelet* codelet = source.groups[set.vertices[i].group].codelet;
        c_.memory[tile][MemoryUse::vertex_state] += program::vertex_state_bytes(*codelet);
        if (i != set.tile_begin[t] && continues_group(source, set, set.tile_begin[t], i)) continue;
        ++groups;
        codelets_.emplace_back(tile, codelet);
      }
      c_.memory[tile][MemoryUse::control_code] += program::control_code_bytes(groups);
    }
  }

  void count_codelets() {
    std::sort(codelets_.begin(), codelets_.end());
    codelets_.erase(std::unique(codelets_.begin(), codelets_.end()), codelets_.end());
    for (const auto& [tile, codelet] : codelets_) {
      TileMemory& memory = c_.memory[tile];
      memory[MemoryUse::vertex_code] += codelet->code_bytes;
      uint64_t& stack = memory[MemoryUse::stack];
      stack = std::max(stack, program::kStackBytes + codelet->stack_bytes);
    }
  }

  Compilation& c_;
  std::vector<std::pair<TileId, const program::Codelet*>> codelets_;
};

}  // namespace

std::string count_code(Compilation& c) {
  if (!is_tiled(c)) return "a host has no exchange";
  CodeCount count(c);
  count.count();
  return fmt::format("{} codelets on tiles", count.codelets());
}

}  // namespace tessera::compiler
