#include <fmt/format.h>

#include <algorithm>

#include "compiler/collective_cost.h"
#include "compiler/passes.h"
#include "compiler/tile_cycles.h"

namespace tessera::compiler {
namespace {

using program::PhaseTimes;
using program::VertexGroup;

/// Cycles of supersteps and exchanges, from the costs of codelets and the rates of the machine.
class CycleCount {
 public:
  explicit CycleCount(Compilation& c) : c_(c), tile_cycles_(c.machine) {}

  void count() {
    c_.executable->set_cycles.reserve(c_.sets.size());
    for (size_t s = 0; s < c_.sets.size(); ++s) count(c_.program.compute_sets()[s], c_.executable->sets[s]);
  }

 private:
  void count(const program::ComputeSet& set, CompiledSet& compiled) {
    SlowestTiles slowest(c_.machine);
    compiled.tile_cycles.reserve(compiled.tiles.size());
    for (size_t t = 0; t < compiled.tiles.size(); ++t) {
      const PhaseTimes cycles = tile_cycles_.of(
          set, compiled, t, [&](const VertexGroup& group, const CompiledVertex& vertex, size_t f) {
            return known_view(c_.program, group.fields[f], vertex.index);
          });
      compiled.tile_cycles.push_back(static_cast<float>(cycles.total()));
      slowest.add(compiled.tiles[t], cycles);
    }
    compiled.balance = balance_of(compiled, slowest.slowest().total());
    compiled.chip_cycles = slowest.chips();
    c_.executable->set_cycles.push_back(superstep_of(c_.machine, compiled, slowest));
  }

  /// Tiles without vertices are idle.
  Balance balance_of(const CompiledSet& set, double most) const {
    Balance balance{0, 0, most};
    for (const double cycles : set.tile_cycles) balance.mean += cycles / c_.machine.tiles;
    if (set.tiles.size() == c_.machine.tiles)
      balance.least = *std::min_element(set.tile_cycles.begin(), set.tile_cycles.end());
    return balance;
  }

  Compilation& c_;
  TileCycles tile_cycles_;
};

MemoryReport report_tiles(const Compilation& c) {
  const auto shared = c.memory.begin() + c.machine.tiles;
  MemoryReport report = report_memory({c.memory.begin(), shared}, *shared, c.machine.tile_bytes);
  report.streaming_capacity_bytes = c.machine.streaming_bytes;
  for (auto chip = shared + 1; chip != c.memory.end(); ++chip) report.streaming_bytes.push_back(chip->end);
  return report;
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

std::string count_cycles(Compilation& c) {
  CycleCount(c).count();
  for (const program::Collective& collective : c.program.collectives())
    c.executable->collectives.push_back(cost_of(c.program, collective, c.machine));
  return fmt::format("{} supersteps", c.sets.size());
}

std::string count_bytes(Compilation& c) {
  MemoryReport& memory = c.executable->memory;
  memory = is_tiled(c) ? report_tiles(c) : report_host(c);
  return fmt::format("fullest tile {} of {} bytes", memory.max_tile_bytes, memory.tile_capacity_bytes);
}

std::string account(Compilation& c) {
  count_cycles(c);
  return count_bytes(c);
}

}  // namespace tessera::compiler
