// Figure 5: how memory, edges, vertices and variables grow with the size of a dense product, from the cost
// report.
#include <fmt/format.h>

#include <array>

#include "report/axis.h"
#include "report/page.h"
#include "studies/butterfly/study.h"
#include "studies/common/charts.h"
#include "studies/paper/product_cell.h"

namespace tessera::studies::butterfly {
namespace {

constexpr std::string_view kFigure5Name = "figure-5";

std::vector<uint32_t> figure_5_sizes_of(const Request& request) {
  std::vector<uint32_t> sizes;
  for (uint32_t size = 128; size <= 4096; size *= 2) {
    sizes.push_back(size);
    if (size < 4096) sizes.push_back(size / 2 * 3);
  }
  if (request.full) sizes.insert(sizes.end(), {5120, 6144, 7168, 8192});
  return sizes;
}

std::string figure_5_name_of(uint32_t size) { return fmt::format("N = {}", size); }

std::vector<Cell> figure_5_cells(const machine::Machine& machine, const Request& request) {
  std::vector<Cell> all;
  if (machine.kind == machine::Kind::host) return all;
  for (uint32_t size : figure_5_sizes_of(request))
    all.push_back(
        {figure_5_name_of(size), 0.3, [size](const Setting& setting) {
           return run_product({.m = size, .k = size, .n = size}, {setting.machine, false, setting.threads});
         }});
  return all;
}

/// A column: a number of a cell.
struct Column {
  const char* value;
  const char* heading;
  bool is_bytes;
};

constexpr std::array kColumns = {
    Column{"total_bytes", "memory", true},          Column{"data_bytes", "of it data", true},
    Column{"temporary_bytes", "temporaries", true}, Column{"code_bytes", "code and vertex state", true},
    Column{"variables", "variables", false},        Column{"compute_sets", "compute sets", false},
    Column{"vertices", "vertices", false},          Column{"edges", "edges", false},
    Column{"exchanges", "exchanges", false},
};

std::string figure_5_text_of(double value, bool is_bytes) {
  return is_bytes ? report::value_text(value, report::Unit::bytes)
                  : report::count_text(static_cast<uint64_t>(value));
}

std::vector<Figure> figure_5_figures(const Study& study) {
  const Part* part = study.modelled();
  if (part == nullptr) return {};
  const double capacity = static_cast<double>(part->machine.tile_bytes) * part->machine.tiles;
  Figure figure{
      fmt::format("A dense FP32 product of N × N matrices on {} (figure 5)", part->machine.name),
      "Data: operands and result. Memory counts all tiles; the product fits if no single tile overflows. The "
      "paper's figure has no numbers.",
      {""}};
  for (const Column& column : kColumns) figure.head.emplace_back(column.heading);
  figure.head.insert(figure.head.end(), {"available", "fullest tile", "memory / data"});
  for (uint32_t size : figure_5_sizes_of(study.request)) {
    const Result* result = part->find(kFigure5Name, figure_5_name_of(size));
    if (result == nullptr) continue;
    std::vector<Figure::Entry> row = {
        {figure_5_name_of(size) + (result->fits ? "" : " (does not fit)"), result->reason}};
    for (const Column& column : kColumns) {
      const auto value = result->value(column.value);
      row.push_back({value ? figure_5_text_of(*value, column.is_bytes) : "-"});
    }
    const auto total = result->value("total_bytes"), data = result->value("data_bytes"),
               fullest = result->value("tile_bytes");
    row.push_back(
        {total ? report::value_text(std::max(0.0, 1 - *total / capacity), report::Unit::share) : "-"});
    row.push_back({fullest ? figure_5_text_of(*fullest, true) : "-"});
    row.push_back({total && data ? fmt::format("{:.2f}", *total / *data) : "-"});
    figure.rows.push_back(std::move(row));
  }
  return {figure};
}

report::Html figure_5_chart_of(const Study& study, const Part& part, bool bytes) {
  report::LineChart chart;
  chart.frame = {bytes ? "Memory of a dense product" : "Size of its program", "", report::kHalf};
  chart.x = logarithmic("N", report::Growth::log2);
  chart.y = {.label = bytes ? "bytes of all tiles" : "number",
             .unit = bytes ? report::Unit::bytes : report::Unit::number,
             .growth = report::Growth::log10};
  if (bytes)
    chart.limit =
        report::Limit{static_cast<double>(part.machine.tile_bytes) * part.machine.tiles, "all memory"};
  size_t colour = 0;
  for (const Column& column : kColumns) {
    if (column.is_bytes != bytes) continue;
    Pair pair(column.heading, colour++);
    for (uint32_t size : figure_5_sizes_of(study.request))
      pair.add(size, part.value(kFigure5Name, figure_5_name_of(size), column.value), std::nullopt,
               figure_5_name_of(size));
    std::move(pair).put_into(chart);
  }
  return report::chart(chart);
}

report::Html figure_5_charts(const Study& study) {
  const Part* part = study.modelled();
  if (part == nullptr) return {};
  return report::side_by_side(
      {figure_5_chart_of(study, *part, true), figure_5_chart_of(study, *part, false)});
}

}  // namespace

Section figure_5() {
  return {.name = kFigure5Name,
          .title = "Memory and program size (figure 5)",
          .cells = figure_5_cells,
          .figures = figure_5_figures,
          .charts = figure_5_charts};
}

}  // namespace tessera::studies::butterfly
