// Figure 3: the time of an exchange between two tiles, by size and by distance. Each cell is a tile program
// that copies from tiles to others, compiled and costed.
#include <fmt/format.h>

#include <array>

#include "compiler/memory.h"
#include "report/axis.h"
#include "report/page.h"
#include "studies/butterfly/exchange_program.h"
#include "studies/butterfly/study.h"
#include "studies/common/charts.h"

namespace tessera::studies::butterfly {
namespace {

constexpr std::string_view kFigure3Name = "figure-3";
constexpr uint32_t kPublishedDistance = 644;

/// Who sends to whom.
struct Route {
  std::string_view name;
  bool is_far;
  bool is_all;

  uint32_t distance(uint32_t tiles) const {
    if (!is_far) return 1;
    return tiles > kPublishedDistance && !is_all ? kPublishedDistance : tiles / 2;
  }
};

constexpr std::array kRoutes = {
    Route{"one tile to its neighbour", false, false}, Route{"one tile to a distant one", true, false},
    Route{"every tile to its neighbour", false, true}, Route{"every tile to a distant one", true, true}};

std::vector<uint32_t> figure_3_sizes_of(const machine::Machine& machine, const Request& request) {
  std::vector<uint32_t> sizes;
  const uint64_t most = std::min<uint64_t>(request.full ? 256 << 10 : 128 << 10, machine.tile_bytes / 3);
  for (uint32_t bytes = 4; bytes <= most; bytes *= request.full ? 2 : 4) sizes.push_back(bytes);
  return sizes;
}

std::string figure_3_name_of(const Route& route, uint32_t bytes) {
  return fmt::format("{} {} B", route.name, bytes);
}

Result run_route(const Route& route, uint32_t bytes, const Setting& setting) {
  const uint32_t tiles = setting.machine.tiles;
  const bound::BoundProgram program(
      exchange_program(tiles, route.distance(tiles), route.is_all ? tiles : 1, bytes / 4), setting.machine);
  Result result;
  result.fits = program.fits();
  if (!result.fits) {
    result.reason = compiler::overflow_text(program.memory());
    return result;
  }
  const double cycles = program.estimate().cycles.total();
  const double seconds = setting.machine.seconds(cycles);
  const double moved = static_cast<double>(bytes) * (route.is_all ? tiles : 1);
  result.values = {{"cycles", cycles}, {"seconds", seconds}, {"bytes_per_second", moved / seconds}};
  if (setting.verify) result.verified = moves_every_element(program);
  return result;
}

std::vector<Cell> figure_3_cells(const machine::Machine& machine, const Request& request) {
  std::vector<Cell> all;
  if (machine.kind == machine::Kind::host || machine.tiles < 2) return all;
  for (const Route& route : kRoutes)
    for (uint32_t bytes : figure_3_sizes_of(machine, request))
      all.push_back({figure_3_name_of(route, bytes), route.is_all ? 0.05 + 2e-7 * bytes : 0.01,
                     [&route, bytes](const Setting& setting) { return run_route(route, bytes, setting); }});
  return all;
}

std::vector<Figure> figure_3_figures(const Study& study) {
  const Part* part = study.modelled();
  if (part == nullptr) return {};
  Figure figure{
      fmt::format("Exchange between tiles of {}: time, and bytes per second (figure 3)", part->machine.name),
      "The sync before the exchange is included. The paper's pairs of tiles are (0, 1) and (0, 644); its "
      "figure "
      "has no numbers. With every tile sending at once, bytes of all tiles count.",
      {"bytes from each tile"}};
  for (const Route& route : kRoutes) figure.head.emplace_back(route.name);
  for (uint32_t bytes : figure_3_sizes_of(part->machine, study.request)) {
    std::vector<Figure::Entry> row = {{report::value_text(bytes, report::Unit::bytes)}};
    bool any = false;
    for (const Route& route : kRoutes) {
      const auto seconds = part->value(kFigure3Name, figure_3_name_of(route, bytes), "seconds");
      const auto rate = part->value(kFigure3Name, figure_3_name_of(route, bytes), "bytes_per_second");
      any |= seconds.has_value();
      row.push_back({seconds ? fmt::format("{}, {}/s", report::value_text(*seconds, report::Unit::seconds),
                                           report::value_text(*rate, report::Unit::bytes))
                             : "-"});
    }
    if (any) figure.rows.push_back(std::move(row));
  }
  return {figure};
}

report::Html figure_3_chart_of(const Study& study, const Part& part, const char* value, const char* label,
                               report::Unit unit) {
  report::LineChart chart;
  chart.frame = {fmt::format("{} of an exchange on {}", label, part.machine.name), "", report::kHalf};
  chart.x = {.label = "bytes from each tile", .unit = report::Unit::bytes, .growth = report::Growth::log2};
  chart.y = {.label = label, .unit = unit, .growth = report::Growth::log10};
  size_t colour = 0;
  for (const Route& route : kRoutes) {
    Pair pair(std::string(route.name), colour++);
    // A distant pair lies on its neighbours' line: marks without a line show both.
    pair.ours.line = !route.is_far;
    for (uint32_t bytes : figure_3_sizes_of(part.machine, study.request))
      pair.add(bytes, part.value(kFigure3Name, figure_3_name_of(route, bytes), value), std::nullopt,
               fmt::format("{} B", bytes));
    std::move(pair).put_into(chart);
  }
  return report::chart(chart);
}

report::Html figure_3_charts(const Study& study) {
  const Part* part = study.modelled();
  if (part == nullptr) return {};
  return report::side_by_side(
      {figure_3_chart_of(study, *part, "seconds", "Latency", report::Unit::seconds),
       figure_3_chart_of(study, *part, "bytes_per_second", "Bytes per second", report::Unit::bytes)});
}

std::vector<Comparison> figure_3_comparisons(const Study& study) {
  const Part* part = study.modelled();
  if (part == nullptr) return {};
  std::vector<Comparison> all;
  const auto sizes = figure_3_sizes_of(part->machine, study.request);
  if (const auto published =
          study.published.number("section-3.csv", "distant over neighbouring latency", "value")) {
    double most = 0;  // the largest deviation from the published ratio
    std::optional<double> ours;
    for (uint32_t bytes : sizes) {
      const auto near = part->value(kFigure3Name, figure_3_name_of(kRoutes[0], bytes), "seconds");
      const auto far = part->value(kFigure3Name, figure_3_name_of(kRoutes[1], bytes), "seconds");
      if (near && far && (!ours || std::abs(*far / *near - *published) > most)) {
        ours = *far / *near;
        most = std::abs(*ours - *published);
      }
    }
    Comparison c{"latency to a distant tile over that to a neighbour", "", *published, ours};
    c.remark = "the model charges no distance; no numbers in the figure";
    all.push_back(std::move(c).within(0.05));
  }
  if (const auto published = study.published.number("section-3.csv", "exchange bandwidth TB/s", "value")) {
    const auto rate =
        part->value(kFigure3Name, figure_3_name_of(kRoutes[3], sizes.back()), "bytes_per_second");
    Comparison c{"exchange bandwidth of all tiles", "TB/s", *published,
                 rate ? std::optional(1e-12 * *rate) : std::nullopt};
    c.remark = "the vendor's figure, not the paper's";
    all.push_back(std::move(c).within(0.05));
  }
  return all;
}

}  // namespace

Section figure_3() {
  return {.name = kFigure3Name,
          .title = "Exchange between tiles (figure 3)",
          .cells = figure_3_cells,
          .figures = figure_3_figures,
          .charts = figure_3_charts,
          .comparisons = figure_3_comparisons};
}

}  // namespace tessera::studies::butterfly
