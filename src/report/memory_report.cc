// Memory of tiles, by use.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/memory.h"
#include "report/plot.h"
#include "report/run_report.h"

namespace tessera::report {
namespace {

using Align = RichTable::Align;
using compiler::kMemoryUses;
using compiler::MemoryUse;
using compiler::TileMemory;

/// Data in strong colours, code and its kind in others, padding in grey.
size_t colour_of_use(MemoryUse use) {
  switch (use) {
    case MemoryUse::inputs: return 0;
    case MemoryUse::outputs: return 2;
    case MemoryUse::state: return 11;
    case MemoryUse::constants: return 8;
    case MemoryUse::work_lists: return 4;
    case MemoryUse::vertex_state: return 3;
    case MemoryUse::vertex_code: return 7;
    case MemoryUse::control_code: return 6;
    case MemoryUse::exchange_code: return 1;
    case MemoryUse::stack: return 9;
    case MemoryUse::temporaries: return 5;
    case MemoryUse::staging_buffers: return 10;
    case MemoryUse::padding: return kGrey;
  }
  return kGrey;
}

/// The uses that occur on any tile, in stacking order: always-live ones first.
std::vector<MemoryUse> uses_of(const compiler::MemoryReport& memory) {
  std::vector<MemoryUse> uses;
  for (bool always : {true, false})
    for (size_t u = 0; u < kMemoryUses; ++u) {
      const auto use = static_cast<MemoryUse>(u);
      const bool is_used =
          memory.shared[use] != 0 || std::any_of(memory.tiles.begin(), memory.tiles.end(),
                                                 [&](const TileMemory& tile) { return tile[use] != 0; });
      if (is_used && is_always_live(use) == always) uses.push_back(use);
    }
  return uses;
}

std::string tile_title(size_t tile, const TileMemory& memory) {
  std::string title = fmt::format("tile {}: {}", tile, base::bytes_text(memory.total()));
  for (size_t u = 0; u < kMemoryUses; ++u)
    if (memory.bytes[u] != 0)
      title += fmt::format("\n{} {}", name_of(static_cast<MemoryUse>(u)), base::bytes_text(memory.bytes[u]));
  return title;
}

/// Drawn only if tiles come near it; otherwise it would leave little room for the data.
std::optional<Limit> capacity_of(const compiler::MemoryReport& memory) {
  if (memory.max_tile_bytes < memory.tile_capacity_bytes / 3) return std::nullopt;
  return Limit{static_cast<double>(memory.tile_capacity_bytes),
               "capacity " + base::bytes_text(memory.tile_capacity_bytes)};
}

std::vector<double> bytes_by_tile(const compiler::MemoryReport& memory) {
  std::vector<double> bytes;
  for (const TileMemory& tile : memory.tiles) bytes.push_back(static_cast<double>(tile.total()));
  return bytes;
}

Html columns_of(const compiler::MemoryReport& memory) {
  const std::vector<MemoryUse> uses = uses_of(memory);
  ColumnChart columns;
  columns.frame.title = "Memory, tile by tile";
  columns.y = {"", Unit::bytes};
  for (MemoryUse use : uses)
    columns.categories.push_back(
        {std::string(name_of(use)) + (is_always_live(use) ? "" : " (not always alive)"), colour_of_use(use)});
  columns.limit = capacity_of(memory);
  columns.frame.note =
      "Data that is not always alive is counted at the step where it takes most; steps share its bytes.";
  if (!columns.limit)
    columns.frame.note += fmt::format(" Each tile has {}.", base::bytes_text(memory.tile_capacity_bytes));
  add_tiles(columns, bytes_by_tile(memory), "fullest", [&](size_t t) {
    std::vector<double> parts;
    for (MemoryUse use : uses) parts.push_back(static_cast<double>(memory.tiles[t][use]));
    return ColumnChart::Column{std::move(parts), tile_title(t, memory.tiles[t])};
  });
  return chart(columns);
}

Html histogram_of(const compiler::MemoryReport& memory) {
  Histogram histogram;
  histogram.frame = {"Tiles by memory use", "", kHalf, 260};
  histogram.x = {"", Unit::bytes, Growth::linear, 0, {}};
  histogram.y.label = "tiles";
  histogram.bins = bins_of(bytes_by_tile(memory));
  histogram.limit = capacity_of(memory);
  return chart(histogram);
}

/// Memory of one tile, or of a host.
Html uses_table(const TileMemory& memory) {
  RichTable table({{"use", Align::left}, {"bytes"}, {"", Align::left}, {"alive", Align::left}});
  std::vector<size_t> order(kMemoryUses);
  for (size_t u = 0; u < kMemoryUses; ++u) order[u] = u;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return memory.bytes[a] > memory.bytes[b]; });
  const double total = std::max<double>(1, static_cast<double>(memory.total()));
  for (size_t u : order) {
    const auto use = static_cast<MemoryUse>(u);
    if (memory.bytes[u] == 0) continue;
    table.add({std::string(name_of(use)), count_text(memory.bytes[u]),
               share_bar(static_cast<double>(memory.bytes[u]) / total, colour_of_use(use)),
               is_always_live(use) ? "always" : "at times"});
  }
  table.add({"total", count_text(memory.total()), "", ""}, true);
  return table.html();
}

/// Data of all memories by what it is for.
Html purposes_table(const compiler::MemoryReport& memory) {
  RichTable table({{"data", Align::left}, {"fullest tile"}, {"total"}});
  for (const auto& [name, bytes] : memory.total_purposes) {
    const auto fullest = memory.fullest_purposes.find(name);
    table.add({name, count_text(fullest == memory.fullest_purposes.end() ? 0 : fullest->second),
               count_text(bytes)});
  }
  return table.html();
}

}  // namespace

Html memory_of(const RunSummary& run) {
  const compiler::MemoryReport& memory = run.memory;
  if (memory.tiles.empty()) return {};
  if (memory.tiles.size() == 1) return uses_table(memory.tiles[0]) + purposes_table(memory);
  const std::string heading =
      fmt::format("Tile {}, the fullest: {} of {}", memory.fullest_tile,
                  base::bytes_text(memory.max_tile_bytes), base::bytes_text(memory.tile_capacity_bytes));
  return columns_of(memory) +
         side_by_side({histogram_of(memory),
                       figure(Frame{heading}, {}, uses_table(memory.tiles[memory.fullest_tile]))}) +
         purposes_table(memory);
}

}  // namespace tessera::report
