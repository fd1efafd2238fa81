#include "report/network_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/memory.h"
#include "report/chart.h"
#include "report/graph_picture.h"
#include "report/lanes.h"
#include "report/page.h"
#include "report/phases.h"

namespace tessera::report {
namespace {

using Align = RichTable::Align;
using graph::OperationCost;
using graph::RunCost;

constexpr size_t kMostOperations = 20;  ///< in the chart

std::vector<KeyFigure> key_figures_of(const RunCost& cost) {
  const double cycles = std::accumulate(cost.cycles.begin(), cost.cycles.end(), 0.0,
                                        [](double sum, const auto& phase) { return sum + phase.second; });
  std::vector<KeyFigure> figures = {
      {"time of a run", value_text(cost.seconds, Unit::seconds), value_text(cycles, Unit::cycles)},
      {"memory", base::bytes_text(cost.total_bytes), "of all tiles together"}};
  if (cost.tiles.size() > 1) {
    const double share = static_cast<double>(cost.fullest_tile_bytes) / static_cast<double>(cost.tile_bytes);
    figures.push_back({"fullest tile", value_text(share, Unit::share),
                       fmt::format("{} of {}", base::bytes_text(cost.fullest_tile_bytes),
                                   base::bytes_text(cost.tile_bytes)),
                       !cost.overflow.empty()});
  }
  if (cost.host_io) figures.push_back(host_io_figure(*cost.host_io));
  if (cost.streaming_bytes > 0)
    figures.push_back({"streaming memory", base::bytes_text(cost.streaming_bytes), "beside the chips"});
  if (cost.sent_bytes > 0)
    figures.push_back({"to other ranks", base::bytes_text(cost.sent_bytes), "sent by each in a run"});
  return figures;
}

/// The operations that take longest first.
std::vector<const OperationCost*> by_time(const RunCost& cost) {
  std::vector<const OperationCost*> order;
  for (const OperationCost& operation : cost.operations)
    if (operation.seconds > 0) order.push_back(&operation);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto* a, const auto* b) { return a->seconds > b->seconds; });
  return order;
}

}  // namespace

KeyFigure host_io_figure(const graph::HostIoCost& transfers) {
  return {kHostTransfers, value_text(transfers.seconds, Unit::seconds),
          fmt::format("{} from it, {} to it", base::bytes_text(transfers.bytes_in),
                      base::bytes_text(transfers.bytes_out))};
}

Html time_chart(const RunCost& cost) {
  const std::vector<const OperationCost*> order = by_time(cost);
  BarChart bars;
  bars.frame.title = "Operations by time";
  bars.value.unit = Unit::seconds;
  bars.categories = phase_categories();
  for (size_t i = 0; i < std::min(order.size(), kMostOperations); ++i) {
    const OperationCost& operation = *order[i];
    double cycles = 0;
    for (const auto& [phase, of_phase] : operation.cycles) cycles += of_phase;
    BarChart::Bar bar{fmt::format("{} → {}", operation.operation, operation.value), {}, {}};
    for (size_t p = 0; p < program::kPhases; ++p) {
      const auto found = operation.cycles.find(std::string(name_of(static_cast<program::Phase>(p))));
      bar.parts.push_back(found == operation.cycles.end() ? 0 : found->second / cycles * operation.seconds);
    }
    bar.value = fmt::format("{}, {}", value_text(operation.seconds, Unit::seconds),
                            value_text(operation.seconds / cost.seconds, Unit::share));
    bars.bars.push_back(std::move(bar));
  }
  if (order.size() > kMostOperations)
    bars.frame.note = fmt::format("The {} that take longest, of {}.", kMostOperations, order.size());
  return chart(bars);
}

Table layers_table(const std::vector<LayerRow>& layers) {
  Table table({"layer", "outputs × inputs", "rows", "density", "dense", "sparse", "block", ""}, {0, 1, 7});
  for (const LayerRow& layer : layers) {
    const Zeros& z = layer.zeros;
    const bool has_times = z.reason != NoGain::not_a_product;
    const bool has_sparse_time = has_times && !std::isnan(z.sparse_seconds);
    std::string form = layer.is_sparse ? "sparse" : layer.why_dense;
    if (layer.copy_bytes > 0) form += fmt::format(", a copy of {}", base::bytes_text(layer.copy_bytes));
    table.add({layer.name, fmt::format("{} × {}", z.rows, z.cols), std::to_string(layer.rows),
               std::isnan(z.density) ? "" : fmt::format("{:.3g}", z.density),
               has_times ? seconds_text(z.dense_seconds) : "",
               has_sparse_time ? seconds_text(z.sparse_seconds) : "",
               has_sparse_time || layer.is_sparse ? std::to_string(z.best_block_size) : "", form});
  }
  return table;
}

Table kinds_table(const RunCost& cost, const std::string& time) {
  double total = 0;
  const std::vector<graph::KindCost> kinds = graph::seconds_by_kind(cost);
  for (const graph::KindCost& kind : kinds) total += kind.seconds;
  Table table({"kind of operation", time, ""});
  for (const graph::KindCost& kind : kinds)
    table.add({kind.kind, seconds_text(kind.seconds), percent_text(total > 0 ? kind.seconds / total : 0)});
  return table;
}

namespace {

Html phases_table(const RunCost& cost) {
  double total = 0;
  for (const auto& [phase, cycles] : cost.cycles) total += cycles;
  RichTable table({{"phase", Align::left}, {"cycles"}, {"", Align::left}});
  for (const auto& [phase, cycles] : cost.cycles)
    table.add({phase, count_text(static_cast<uint64_t>(cycles)), share_bar(cycles / total, 0)});
  return table.html();
}

uint64_t total_of(const std::map<std::string, uint64_t>& tile) {
  return std::accumulate(tile.begin(), tile.end(), uint64_t{0},
                         [](uint64_t sum, const auto& purpose) { return sum + purpose.second; });
}

}  // namespace

Html tiles_chart(const RunCost& cost) {
  std::vector<std::string> names;
  for (const auto& tile : cost.tiles)
    for (const auto& [purpose, bytes] : tile)
      if (std::ranges::find(names, purpose) == names.end()) names.push_back(purpose);
  ColumnChart columns;
  columns.frame.title = "Memory, tile by tile";
  columns.y = {"", Unit::bytes};
  for (const std::string& name : names)
    columns.categories.push_back({name, name == "other" ? std::optional(kGrey) : std::nullopt});
  std::vector<double> bytes;
  for (const auto& tile : cost.tiles) bytes.push_back(static_cast<double>(total_of(tile)));
  add_tiles(columns, bytes, "fullest", [&](size_t t) {
    const auto& tile = cost.tiles[t];
    ColumnChart::Column column;
    column.title = fmt::format("tile {}: {}", t, base::bytes_text(total_of(tile)));
    for (const std::string& name : names) {
      const auto found = tile.find(name);
      column.parts.push_back(found == tile.end() ? 0 : static_cast<double>(found->second));
    }
    return column;
  });
  if (cost.fullest_tile_bytes >= cost.tile_bytes / 3)
    columns.limit =
        Limit{static_cast<double>(cost.tile_bytes), "capacity " + base::bytes_text(cost.tile_bytes)};
  return chart(columns);
}

std::string network_page(const graph::Graph& graph, const RunCost& cost, const std::string& title,
                         const std::string& machine, const std::vector<LayerRow>& layers) {
  Page page(title, machine);
  Html summary = key_figures(key_figures_of(cost));
  if (!cost.overflow.empty()) summary += paragraph(cost.overflow);
  page.add_section("Summary", summary);
  if (!layers.empty()) page.add_section("Layers", table(layers_table(layers)));
  page.add_section("Time", time_chart(cost) + table(kinds_table(cost, "time")) + phases_table(cost));
  if (const Html lanes = lanes_of(cost); !lanes.empty()) page.add_section("Pipeline", lanes);
  if (cost.tiles.size() > 1) page.add_section("Memory", tiles_chart(cost));
  page.add_section("Operations and data", cost_tables(cost));
  page.add_section("Graph", picture(graph));
  return page.html();
}

}  // namespace tessera::report
