// Table 1: the machine. Figures of the model beside the data sheet's.
#include <fmt/format.h>

#include "studies/butterfly/study.h"

namespace tessera::studies::butterfly {
namespace {

/// A load from interleaved memory and a store, each cycle on every tile, in bytes per second.
double memory_bandwidth(const machine::Machine& m) {
  return (m.interleaved_load_bytes_per_cycle() + m.load_bytes_per_cycle) * m.tiles * m.clock_hz;
}

/// The machine's value for a row of the table, in the row's unit; none if the model does not have it.
std::optional<double> fact_of(const machine::Machine& m, const std::string& name) {
  const bool host = m.kind == machine::Kind::host;
  if (name == "cores") return m.tiles;
  if (name == "clock") return 1e-9 * m.clock_hz;
  if (name == "FP32 peak")
    return host ? 1e-3 * m.figures.core_gflops() * m.tiles
                : 2e-12 * m.macs_per_cycle_f32 * m.tiles * m.clock_hz;
  if (host) {
    if (name == "off-chip memory bandwidth") return m.figures.memory_gbps;
    return std::nullopt;
  }
  if (name == "on-chip memory") return static_cast<double>(m.tile_bytes) * m.tiles / (1 << 20);
  if (name == "on-chip memory bandwidth") return 1e-12 * memory_bandwidth(m);
  return std::nullopt;
}

Figure::Entry table_1_number(std::optional<double> value) {
  return {value ? fmt::format("{:.4g}", *value) : "-"};
}

std::vector<Figure> table_1_figures(const Study& study) {
  Figure figure{
      "The machine (table 1)",
      "The model has no off-chip memory and no power. On-chip memory is in MiB: the paper's 900 MB "
      "are 897 MiB. Its bandwidth counts a 16-byte load and an 8-byte store per cycle on each tile.",
      {"", "unit", "A30, published", "GC200, published"}};
  for (const Part& part : study.parts) figure.head.push_back(part.machine.name);
  for (const PublishedRow& row : study.published.rows("table-1.csv")) {
    const std::string& name = row.text("name");
    std::vector<Figure::Entry> entries = {
        {name},
        {row.text("unit")},
        table_1_number(study.published.number("table-1.csv", name, "a30")),
        table_1_number(study.published.number("table-1.csv", name, "gc200"))};
    for (const Part& part : study.parts) entries.push_back(table_1_number(fact_of(part.machine, name)));
    figure.rows.push_back(std::move(entries));
  }
  return {figure};
}

std::vector<Comparison> table_1_comparisons(const Study& study) {
  const Part* part = study.modelled();
  std::vector<Comparison> all;
  if (part == nullptr) return all;
  for (const PublishedRow& row : study.published.rows("table-1.csv")) {
    const std::string& name = row.text("name");
    const auto published = study.published.number("table-1.csv", name, "gc200");
    const auto ours = fact_of(part->machine, name);
    if (published && ours) all.push_back(Comparison{name, row.text("unit"), *published, ours}.within(0.05));
  }
  return all;
}

}  // namespace

Section table_1() {
  return {.name = "table-1",
          .title = "The machine (table 1)",
          .figures = table_1_figures,
          .comparisons = table_1_comparisons};
}

}  // namespace tessera::studies::butterfly
