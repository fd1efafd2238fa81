// Throughput of training over the size of the network, the batch, and the number of layers.
#include <fmt/format.h>

#include "report/page.h"
#include "studies/common/charts.h"
#include "studies/snn/network_cell.h"
#include "studies/snn/study.h"

namespace tessera::studies::snn {
namespace {

// Seconds of a step per neuron, time step and sample: a network of 3,000 neurons, 10 time steps and 48
// samples takes a second to execute on modelled tiles.
constexpr double kSecondsPerUpdate = 1e-6;

/// A figure of networks that differ in one quantity.
struct ThroughputSweep {
  std::string_view section;
  const char* title;
  const char* quantity;  ///< on the axis
  report::Growth growth;
  std::vector<double> rooms;
  std::vector<std::pair<double, NetworkCase>> points;  ///< with that quantity; for each room
};

NetworkCase with_room(NetworkCase what, double room) {
  what.room = room;
  return what;
}

ThroughputSweep size_sweep(const machine::Machine& machine, const Request& request) {
  ThroughputSweep sweep{"size",        "Networks of 1471·n neurons in 3n/2 layers, T = 10, batch 48, SGD",
                        "neurons",     report::Growth::log2,
                        {0.05, 0.025}, {}};
  const bool host = machine.kind == machine::Kind::host;
  const uint32_t most = request.full ? 32 : host ? 4 : 8;
  for (uint32_t n = 2; n <= most; n *= 2) {
    const NetworkCase what{.hidden = hidden_layers(n, 3 * n / 2)};
    sweep.points.push_back({static_cast<double>(neurons_of(what)), what});
  }
  return sweep;
}

ThroughputSweep batch_sweep(const machine::Machine&, const Request& request) {
  ThroughputSweep sweep{
      "batch", "2942 neurons in 3 layers, T = 10, SGD", "batch", report::Growth::log2, {0.05}, {}};
  for (uint32_t batch = 24; batch <= (request.full ? 384U : 96U); batch *= 2)
    sweep.points.push_back({static_cast<double>(batch), {.hidden = hidden_layers(2, 3), .batch = batch}});
  return sweep;
}

ThroughputSweep steps_sweep(const machine::Machine&, const Request& request) {
  ThroughputSweep sweep{
      "steps", "2942 neurons, T = 100, batch 48, Adam", "hidden layers", report::Growth::linear, {0.05}, {}};
  for (uint32_t layers = 2; layers <= (request.full ? 5U : 3U); ++layers)
    sweep.points.push_back(
        {static_cast<double>(layers), {.hidden = hidden_layers(2, layers), .steps = 100, .adam = true}});
  return sweep;
}

/// The network with n = 2 on more and on fewer tiles.
ThroughputSweep tiles_sweep(const machine::Machine& machine, const Request& request) {
  ThroughputSweep sweep{"tiles",
                        "2942 neurons in 3 layers, T = 10, batch 48, SGD",
                        "neurons per tile",
                        report::Growth::log2,
                        {0.05},
                        {}};
  if (machine.kind == machine::Kind::host) return sweep;
  for (uint32_t n = 2; n <= (request.full ? 128U : 32U); n *= 2)
    sweep.points.push_back({static_cast<double>(n), {.hidden = hidden_layers(2, 3), .neurons_per_tile = n}});
  return sweep;
}

/// Networks with equally many neurons per chip, in equally many layers, each on one chip.
ThroughputSweep chips_sweep(const machine::Machine& machine, const Request& request) {
  ThroughputSweep sweep{"chips", "2942 neurons in 3 layers for each chip, T = 10, batch 48, SGD",
                        "chips", report::Growth::log2,
                        {0.05},  {}};
  if (machine.kind == machine::Kind::host || machine.chips > 1) return sweep;
  for (uint32_t chips = 1; chips <= (request.full ? 16U : 4U); chips *= 2) {
    std::vector<uint32_t> hidden;
    for (uint32_t chip = 0; chip < chips; ++chip)
      for (const uint32_t neurons : hidden_layers(2, 3)) hidden.push_back(neurons);
    sweep.points.push_back({static_cast<double>(chips), {.hidden = hidden, .chips = chips}});
  }
  return sweep;
}

Cell cell_of(const NetworkCase& what) {
  const double updates = static_cast<double>(neurons_of(what)) * what.steps * what.batch;
  return {name_of(what), kSecondsPerUpdate * updates,
          [what](const Setting& setting) { return run_network(what, setting); }};
}

std::string percent(std::optional<double> fraction) {
  return fraction ? fmt::format("{:.1f} %", 100 * *fraction) : "-";
}

Figure throughput_figure_of(const ThroughputSweep& sweep, const Part& part) {
  Figure figure{
      fmt::format("{}, on {}", sweep.title, part.machine.name),
      "Capacity: neurons for which lists have memory. Fired and listed: neurons per step. Balance: the "
      "mean compute time of a tile, divided by the time of the slowest. -: does not fit.",
      {sweep.quantity, "capacity", "fired", "listed", "ms per batch", "samples per second"}};
  if (!part.is_host())
    figure.head.insert(figure.head.end(), {"compute", "exchange", "sync", "balance", "fullest tile, KiB"});
  for (const double room : sweep.rooms)
    for (const auto& [x, what] : sweep.points) {
      const Result* result = part.find(sweep.section, name_of(with_room(what, room)));
      if (result == nullptr) continue;
      const auto seconds = result->value("seconds"), rate = result->value("samples_per_second");
      std::vector<Figure::Entry> row = {
          {fmt::format("{}", x)},
          {percent(room)},
          {percent(result->value("fired"))},
          {percent(result->value("listed"))},
          {seconds ? fmt::format("{:.3g}", 1e3 * *seconds) : "-", result->reason},
          {rate ? fmt::format("{:.0f}", *rate) : "-"}};
      if (!part.is_host()) {
        for (const char* phase : {"compute_share", "exchange_share", "sync_share", "balance"})
          row.push_back({percent(result->value(phase))});
        const auto bytes = result->value("tile_bytes");
        row.push_back({bytes ? fmt::format("{:.0f}", *bytes / 1024) : "-"});
      }
      figure.rows.push_back(std::move(row));
    }
  return figure;
}

template <ThroughputSweep (*sweep_of)(const machine::Machine&, const Request&)>
std::vector<Cell> throughput_cells(const machine::Machine& machine, const Request& request) {
  std::vector<Cell> all;
  const ThroughputSweep sweep = sweep_of(machine, request);
  for (const double room : sweep.rooms)
    for (const auto& [x, what] : sweep.points) all.push_back(cell_of(with_room(what, room)));
  return all;
}

template <ThroughputSweep (*sweep_of)(const machine::Machine&, const Request&)>
std::vector<Figure> throughput_figures(const Study& study) {
  std::vector<Figure> all;
  for (const Part& part : study.parts)
    all.push_back(throughput_figure_of(sweep_of(part.machine, study.request), part));
  return all;
}

template <ThroughputSweep (*sweep_of)(const machine::Machine&, const Request&)>
report::Html throughput_charts(const Study& study) {
  report::LineChart chart;
  size_t colour = 0;
  for (const Part& part : study.parts) {
    const ThroughputSweep sweep = sweep_of(part.machine, study.request);
    chart.frame = {sweep.title, "Throughput of training steps."};
    chart.x = logarithmic(sweep.quantity, sweep.growth);
    chart.y = {.label = "samples per second", .growth = report::Growth::log10};
    for (const double room : sweep.rooms) {
      Pair pair(fmt::format("{}, capacity {}", part.machine.name, percent(room)), colour++);
      for (const auto& [x, what] : sweep.points)
        if (const auto rate = part.value(sweep.section, name_of(with_room(what, room)), "samples_per_second"))
          pair.add(x, rate, std::nullopt, fmt::format("{} {}", x, sweep.quantity));
      std::move(pair).put_into(chart);
    }
  }
  return chart.series.empty() ? report::Html{} : report::chart(chart);
}

template <ThroughputSweep (*sweep_of)(const machine::Machine&, const Request&)>
Section throughput_section(std::string_view name, std::string_view title) {
  return {.name = name,
          .title = title,
          .cells = throughput_cells<sweep_of>,
          .figures = throughput_figures<sweep_of>,
          .charts = throughput_charts<sweep_of>};
}

}  // namespace

Section size() { return throughput_section<size_sweep>("size", "Throughput over the size of the network"); }
Section batch() { return throughput_section<batch_sweep>("batch", "Throughput over the batch"); }
Section tiles() {
  return throughput_section<tiles_sweep>("tiles", "Few neurons on many tiles, and many on few");
}
Section chips() {
  return throughput_section<chips_sweep>("chips", "Networks that grow with the number of chips");
}
Section steps() {
  return throughput_section<steps_sweep>("steps", "Long sequences, by the number of layers");
}

}  // namespace tessera::studies::snn
