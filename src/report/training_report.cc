#include "report/training_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/memory.h"
#include "graph/loop.h"
#include "graph/operation.h"
#include "report/chart.h"
#include "report/lanes.h"
#include "report/network_report.h"
#include "report/page.h"
#include "report/spiking_traces.h"

namespace tessera::report {
namespace {

Html charts_of(const TrainingResult& result) {
  const auto chart_of = [&](const char* title, const char* label, Unit unit, auto training, auto validation) {
    LineChart lines;
    lines.frame = {title, "", kHalf, 300};
    lines.x.label = "epoch";
    lines.y = {label, unit};
    lines.series = {{"training", {}, 0}, {"validation", {}, 1}};
    for (const EpochResult& e : result.epochs) {
      if (const std::optional<double> value = training(e))
        lines.series[0].points.push_back({double(e.epoch), *value});
      lines.series[1].points.push_back({double(e.epoch), validation(e)});
    }
    return chart(lines);
  };
  return side_by_side(
      {chart_of(
           "Loss", "cross-entropy", Unit::number, [](const EpochResult& e) { return std::optional(e.loss); },
           [](const EpochResult& e) { return e.validation_loss; }),
       chart_of(
           "Accuracy", "accuracy", Unit::share, [](const EpochResult& e) { return e.accuracy; },
           [](const EpochResult& e) { return e.validation_accuracy; })});
}

Html epochs_of(const TrainingResult& result) {
  RichTable table(
      {{"epoch"}, {"loss"}, {"accuracy"}, {"validation loss"}, {"validation accuracy"}, {"time"}});
  for (const EpochResult& e : result.epochs)
    table.add({fmt::format("{}", e.epoch), fmt::format("{:.4f}", e.loss),
               e.accuracy ? percent_text(*e.accuracy) : "–", fmt::format("{:.4f}", e.validation_loss),
               percent_text(e.validation_accuracy),
               e.seconds > 0 ? value_text(e.seconds, Unit::seconds) : "earlier"},
              e.epoch == result.best_epoch);
  return table.html();
}

Html figures_of(const TrainingReport& r) {
  std::vector<KeyFigure> figures;
  if (r.result) {
    const TrainingResult& result = *r.result;
    if (result.test_accuracy)
      figures.push_back(
          {"test accuracy", percent_text(*result.test_accuracy),
           fmt::format("loss {:.4f}, network of epoch {}", *result.test_loss, result.best_epoch)});
    if (result.best_epoch != 0)
      figures.push_back({"validation accuracy",
                         percent_text(result.epochs[result.best_epoch - 1].validation_accuracy),
                         fmt::format("best, epoch {}", result.best_epoch)});
  }
  add_cost_figures(figures, r, r.result && r.result->steps_run > 0 ? r.result->step_seconds : 0);
  return key_figures(figures);
}

Html memory_of(const CostReport& r, const graph::RunCost& step) {
  RichTable table({{"data", RichTable::Align::left}, {"bytes"}, {"", RichTable::Align::left}});
  uint64_t most = 1;
  for (const auto& [name, bytes] : step.bytes) most = std::max(most, bytes);
  for (const auto& [name, bytes] : step.bytes)
    table.add({name, count_text(bytes), share_bar(double(bytes) / double(most), 0)});
  Html all = table.html();
  if (r.modelled) all += tiles_chart(step);
  if (!step.overflow.empty()) all += paragraph(step.overflow);
  return all;
}

Html operations_of(const CostReport& r, const PhaseCosts& phase, const std::vector<double>& measured) {
  const graph::RunCost& step = phase.step;
  RichTable table({{"operation", RichTable::Align::left},
                   {r.modelled ? "cycles" : "predicted"},
                   {"", RichTable::Align::left},
                   {measured.empty() ? "" : "measured"}});
  for (size_t i = 0; i < step.operations.size(); ++i) {
    const double seconds = step.operations[i].seconds;
    if (seconds == 0) continue;
    table.add({phase.operations.at(i), time_text(r, seconds), share_bar(seconds / step.seconds, 0),
               measured.empty() ? "" : value_text(measured.at(i), Unit::seconds)});
  }
  if (step.host_io)
    table.add({kHostTransfers, time_text(r, step.host_io->seconds),
               share_bar(step.host_io->seconds / step.seconds, 0), ""});
  return r.modelled ? time_chart(step) + table.html() : table.html();
}

}  // namespace

double CostReport::predicted_seconds() const {
  double seconds = 0;
  for (const PhaseCosts& phase : phases)
    seconds +=
        double(phase.steps) * phase.step.seconds + double(phase.evaluations) * phase.evaluation.seconds;
  return seconds;
}

uint64_t CostReport::most_bytes() const {
  uint64_t most = 0;
  for (const PhaseCosts& phase : phases) most = std::max(most, phase.step.total_bytes);
  return most;
}

std::string machine_text(const Machine& machine) {
  return fmt::format("{}, {} tiles", machine.is_host() ? "host" : machine.name(),
                     count_text(machine.tiles()));
}

std::string time_text(const CostReport& report, double seconds) {
  return report.modelled ? value_text(seconds * report.clock_hz, Unit::cycles)
                         : value_text(seconds, Unit::seconds);
}

std::vector<std::string> names_of_operations(const graph::Graph& graph) {
  std::vector<std::string> names;
  const graph::OpenedGraph all = opened(graph);
  for (const graph::OpenedNode& node : all.nodes) {
    const graph::ValueInfo& output = all.values[node.outputs[0]].info();
    const std::string of = output.belongs ? " of " + node.graph->info(*output.belongs).name : "";
    names.push_back(fmt::format("{} {}{}", node.node->operation->name, to_string(output.type), of));
  }
  return names;
}

Html settings_table(const CostReport& report, const std::vector<std::string>& but) {
  RichTable table({{"setting", RichTable::Align::left}, {"value", RichTable::Align::left}});
  for (const auto& [name, value] : report.settings)
    if (std::ranges::find(but, name) == but.end()) table.add({name, value});
  return table.html();
}

Table memory_table(const CostReport& report, const PhaseCosts& phase) {
  Table table({"data", "bytes"});
  for (const auto& [name, bytes] : phase.step.bytes) table.add({name, count_text(bytes)});
  table.add({"everything", count_text(phase.step.total_bytes)});
  if (report.modelled)
    table.add({fmt::format("fullest tile, of {}", count_text(phase.step.tile_bytes)),
               count_text(phase.step.fullest_tile_bytes)});
  if (phase.step.streaming_bytes > 0)
    table.add({"in streaming memory", count_text(phase.step.streaming_bytes)});
  return table;
}

Table operations_table(const CostReport& report, const PhaseCosts& phase) {
  Table table({"operation of a step", report.modelled ? "cycles" : "predicted", "share"});
  std::vector<size_t> order(phase.step.operations.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](size_t i) { return phase.step.operations[i].seconds; });
  for (size_t i : order) {
    const double seconds = phase.step.operations[i].seconds;
    if (seconds == 0) continue;
    table.add({phase.operations.at(i), time_text(report, seconds),
               fmt::format("{:.1f} %", 100 * seconds / phase.step.seconds)});
  }
  if (const auto& transfers = phase.step.host_io)
    table.add({kHostTransfers, time_text(report, transfers->seconds),
               fmt::format("{:.1f} %", 100 * transfers->seconds / phase.step.seconds)});
  table.add({"step", time_text(report, phase.step.seconds), ""});
  table.add({"evaluation of a batch", time_text(report, phase.evaluation.seconds), ""});
  return table;
}

std::string text_of(const EpochResult& e) {
  return fmt::format("{:5}  {:8.4f}  {:>8}  {:15.4f}  {:>19}  {:>8}\n", e.epoch, e.loss,
                     e.accuracy ? percent_text(*e.accuracy) : "–", e.validation_loss,
                     percent_text(e.validation_accuracy),
                     e.seconds > 0 ? seconds_text(e.seconds) : "earlier");
}

void add_cost_figures(std::vector<KeyFigure>& figures, const CostReport& r, double measured) {
  const auto label_of = [](const char* what, const PhaseCosts& phase) {
    return phase.name.empty() ? what : fmt::format("{} with {}", what, phase.name);
  };
  if (measured > 0)
    figures.push_back({"training step", time_text(r, measured),
                       r.modelled ? fmt::format("{} at its clock", value_text(measured, Unit::seconds))
                                  : "mean on the host"});
  for (const PhaseCosts& phase : r.phases) {
    const graph::RunCost& step = phase.step;
    if (measured == 0)
      figures.push_back({label_of("training step", phase), time_text(r, step.seconds),
                         r.modelled ? fmt::format("{} at its clock", value_text(step.seconds, Unit::seconds))
                                    : "predicted"});
    figures.push_back({label_of("memory", phase), base::bytes_text(step.total_bytes),
                       !r.modelled
                           ? "of a training step"
                           : fmt::format("fullest tile {} of {}", base::bytes_text(step.fullest_tile_bytes),
                                         base::bytes_text(step.tile_bytes))});
  }
  for (const PhaseCosts& phase : r.phases) {
    if (!phase.step.host_io) continue;
    KeyFigure figure = host_io_figure(*phase.step.host_io);
    figure.name = label_of(kHostTransfers, phase);
    figures.push_back(std::move(figure));
  }
  figures.push_back({"parameters", count_text(r.parameters), "values that are stored"});
}

void add_cost_sections(Page& page, const CostReport& r, const std::vector<double>& measured) {
  for (const PhaseCosts& phase : r.phases) {
    const std::string with = phase.name.empty() ? "" : fmt::format(" with {}", phase.name);
    if (const Html lanes = lanes_of(phase.step); !lanes.empty())
      page.add_section(fmt::format("Pipeline of a training step{}", with), lanes);
    page.add_section(fmt::format("Memory of a training step{} by purpose", with), memory_of(r, phase.step));
    if (!phase.operations.empty())
      page.add_section(fmt::format("Time of a training step{} by operation", with),
                       operations_of(r, phase, measured));
  }
  page.add_section("Settings", settings_table(r));
}

std::string page_of(const TrainingReport& r) {
  Page page(fmt::format("Training of {}", r.network), fmt::format("{}, {}", r.data, r.machine));
  Html overview = figures_of(r);
  if (r.result && !r.result->epochs.empty()) overview += charts_of(*r.result) + epochs_of(*r.result);
  page.add_section("Results", overview);
  if (r.result && !r.result->epochs.empty() && !r.result->epochs.front().activity.empty())
    page.add_section("Activity", activity_charts(*r.result));
  if (r.traces) page.add_section("Spikes and potentials", raster_of(*r.traces));
  add_cost_sections(page, r, r.result ? r.result->measured : std::vector<double>());
  return page.html();
}

}  // namespace tessera::report
