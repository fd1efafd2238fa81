#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/memory.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "io/json_text.h"
#include "machine/host/measure.h"
#include "machine/model/links.h"
#include "machine/model/machine.h"
#include "report/axis.h"
#include "report/table.h"

namespace tessera::cli {
namespace {

using nlohmann::ordered_json;

ordered_json json_of(const machine::Machine& m) {
  ordered_json figures = ordered_json::array();
  for (const machine::Figure& f : m.sources)
    figures.push_back({{"name", f.name}, {"value", f.value}, {"unit", f.unit}, {"source", f.source}});
  ordered_json json = {
      {"name", m.name}, {"description", m.description}, {"tiles", m.tiles}, {"figures", figures}};
  if (m.chips == 1) return json;
  ordered_json links = ordered_json::array();
  const machine::Links of_machine(m);
  for (const machine::Link& link : of_machine.all())
    if (link.from < link.to) links.push_back({link.from, link.to});
  json["chips"] = m.chips;
  json["tiles_per_chip"] = m.chip_tiles;
  json["topology"] = name_of(m.topology);
  json["links"] = links;
  return json;
}

std::string plural(uint64_t count, std::string_view what) {
  return fmt::format("{} {}{}", report::count_text(count), what, count == 1 ? "" : "s");
}

/// Chips, tiles, workers and links, from the whole to its parts.
std::string tree_of(const machine::Machine& m) {
  const uint32_t tiles = m.chips == 1 ? m.tiles : m.chip_tiles;
  std::string tree = fmt::format("{}\n", plural(m.chips, "chip"));
  if (m.chips > 1) {
    const machine::Links links(m);
    std::string neighbours;
    for (const machine::Link& link : links.all())
      if (link.from == 0) neighbours += fmt::format("{}{}", neighbours.empty() ? "" : ", ", link.to);
    const std::string width =
        m.topology == machine::Topology::torus ? fmt::format(", rows of {}", m.torus_width) : "";
    tree += fmt::format("├─ {}: {}{}; chip 0 to {}\n", plural(links.all().size() / 2, "link"),
                        name_of(m.topology), width, neighbours);
  }
  if (m.streaming_bytes > 0)
    tree += fmt::format("├─ each: {} of streaming memory\n", base::bytes_text(m.streaming_bytes));
  const std::string numbers =
      m.chips == 1 ? "" : fmt::format(", numbered from {} × chip", report::count_text(tiles));
  tree +=
      fmt::format("└─ each: {} of {}{}\n", plural(tiles, "tile"), base::bytes_text(m.tile_bytes), numbers);
  return tree + fmt::format("   └─ each: {}\n", plural(m.workers_per_tile, "worker"));
}

std::vector<std::string> all_names() {
  std::vector<std::string> names = machine::builtin_names();
  names.insert(names.begin(), "host");
  return names;
}

int show(const std::vector<std::string>& names, const CommonOptions& options) {
  ordered_json list = ordered_json::array();
  for (const std::string& name : names) {
    const machine::Machine m = machine::find(name, options.threads);
    list.push_back(json_of(m));
    if (options.json) continue;
    fmt::print("{}{}: {}\n", list.size() > 1 ? "\n" : "", m.name, m.description);
    if (m.kind == machine::Kind::tiled) fmt::print("{}", tree_of(m));
    report::Table table({"figure", "value", "unit", "source"}, {0, 2, 3});
    for (const machine::Figure& f : m.sources)
      table.add({f.name, fmt::format("{:.12g}", f.value), f.unit, f.source});
    fmt::print("{}", table.text());
  }
  if (options.json)
    fmt::print("{}\n", json_text({{"schema", 1}, {"command", "machines"}, {"results", list}}));
  return 0;
}

/// Arithmetic intensity above which each memory level is no longer the bottleneck.
void print_roofline(const machine::HostMeasurement& measured) {
  const double peak = measured.peaks.back().gflops.all;
  fmt::print("\nroofline of {} ({:.0f} GFLOP/s)\n", name_of(measured.peaks.back().isa), peak);
  report::Table table({"from", "GB/s", "full speed from", "1 FLOP/B", "4", "16", "64"});
  for (const machine::LevelRate& level : measured.levels) {
    std::vector<std::string> row = {level.level, fmt::format("{:.1f}", level.read.all),
                                    fmt::format("{:.1f} FLOP/B", peak / level.read.all)};
    for (double intensity : {1.0, 4.0, 16.0, 64.0})
      row.push_back(fmt::format("{:.0f}", std::min(peak, intensity * level.read.all)));
    table.add(std::move(row));
  }
  fmt::print("{}", table.text());
}

void print(const machine::HostMeasurement& measured) {
  fmt::print("{}, {} threads\n\n", measured.cpu, measured.threads);
  report::Table peaks({"arithmetic", "GFLOP/s, one thread", "all threads", "GHz"});
  for (const machine::PeakRate& p : measured.peaks)
    peaks.add({std::string(name_of(p.isa)), fmt::format("{:.1f}", p.gflops.one),
               fmt::format("{:.1f}", p.gflops.all), fmt::format("{:.2f}", p.ghz)});
  fmt::print("{}\n", peaks.text());
  report::Table levels({"reading", "of a thread", "GB/s, one thread", "all threads"});
  for (const machine::LevelRate& level : measured.levels)
    levels.add({level.level, base::bytes_text(level.thread_bytes), fmt::format("{:.1f}", level.read.one),
                fmt::format("{:.1f}", level.read.all)});
  levels.add({"memory, writing", "", fmt::format("{:.1f}", measured.memory_write.one),
              fmt::format("{:.1f}", measured.memory_write.all)});
  levels.add({"memory, copying", "", fmt::format("{:.1f}", measured.memory_copy.one),
              fmt::format("{:.1f}", measured.memory_copy.all)});
  fmt::print("{}\nsuperstep of all threads: {}\n", levels.text(),
             report::seconds_text(measured.superstep_seconds));
  print_roofline(measured);
}

int measure(const CommonOptions& options) {
  const machine::HostFacts facts = machine::detect_host();
  const unsigned threads = options.threads != 0 ? options.threads : machine::default_threads(facts);
  const std::filesystem::path file = machine::measurement_file(facts);
  machine::require_writable(file);
  constexpr size_t kSteps = 100;
  Progress progress(kSteps);
  const machine::HostMeasurement measured =
      machine::measure_host(facts, threads, [&](std::string_view what, double done) {
        progress.show(static_cast<size_t>(done * kSteps), std::string(what));
      });
  progress.clear();
  machine::save_measurement(measured, file);
  if (options.json) {
    fmt::print("{}\n", json_text({{"schema", 1},
                                  {"command", "machines measure"},
                                  {"file", file.string()},
                                  {"results", io::parse_ordered_json(machine::to_json(measured))}}));
    return 0;
  }
  print(measured);
  complain(fmt::format("saved to {}; plans for host will use these figures", file.string()));
  return 0;
}

}  // namespace

Command add_machines_command(CLI::App& app) {
  CLI::App& command =
      *app.add_subcommand("machines", "Show machines, their figures and the sources of the figures");
  auto options = std::make_shared<CommonOptions>();
  auto name = std::make_shared<std::string>();
  add_common_options(command, *options);
  CLI::App& show_command =
      *command.add_subcommand("show", "Show one machine: host, a modelled machine, or a .toml file");
  show_command.add_option("machine", *name, "host, the name of a modelled machine, or a .toml file")
      ->required();
  add_common_options(show_command, *options);
  show_command.footer("\nExamples:\n  tessera machines show bow\n  tessera machines show host --json");
  CLI::App& measure_command = *command.add_subcommand("measure", "Measure the host, and cache the figures");
  add_common_options(measure_command, *options);
  measure_command.footer("\nExample:\n  tessera machines measure --threads 8");
  command.require_subcommand(0, 1);
  command.footer("\nExamples:\n  tessera machines\n  tessera machines show bow\n  tessera machines measure");
  return [options, name, &show_command, &measure_command] {
    if (measure_command.parsed()) return measure(*options);
    return show(show_command.parsed() ? std::vector{*name} : all_names(), *options);
  };
}

}  // namespace tessera::cli
