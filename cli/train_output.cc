#include "cli/train_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/isa.h"
#include "base/memory.h"
#include "cli/output.h"
#include "io/json_text.h"
#include "report/axis.h"
#include "report/run_report.h"
#include "studies/common/json.h"
#include "train/settings.h"

namespace tessera::cli {
namespace {

using nlohmann::ordered_json;
using report::CostReport;
using report::PhaseCosts;
using report::TrainingReport;
using report::Unit;
using report::value_text;
using studies::or_null;

uint64_t cycles_of(const CostReport& r, double seconds) {
  return static_cast<uint64_t>(std::llround(seconds * r.clock_hz));
}

ordered_json json_of(const CostReport& r, const graph::RunCost& cost) {
  ordered_json json = {{"seconds", cost.seconds}};
  if (r.modelled) {
    json["cycles"] = cycles_of(r, cost.seconds);
    json["phases"] = cost.cycles;
    if (cost.host_io) json["host_io"] = host_io_json(*cost.host_io);
    json["tile_bytes"] = cost.tile_bytes;
    json["fullest_tile_bytes"] = cost.fullest_tile_bytes;
    if (cost.streaming_bytes > 0) json["streaming_bytes"] = cost.streaming_bytes;
  }
  json["bytes"] = cost.total_bytes;
  json["purposes"] = cost.bytes;
  json["fits"] = cost.overflow.empty();
  if (!cost.overflow.empty()) json["overflow"] = cost.overflow;
  return json;
}

ordered_json operations_of(const CostReport& r, const PhaseCosts& phase,
                           const std::vector<double>& measured) {
  ordered_json list = ordered_json::array();
  for (size_t i = 0; i < phase.step.operations.size(); ++i) {
    const graph::OperationCost& o = phase.step.operations[i];
    list.push_back({{"operation", phase.operations.at(i)}, {"seconds", o.seconds}});
    if (r.modelled) list.back()["cycles"] = cycles_of(r, o.seconds);
    if (!measured.empty()) list.back()["measured_seconds"] = measured.at(i);
  }
  return list;
}

void add_result(ordered_json& json, const TrainingReport& r, uint64_t resumed_from) {
  const TrainingResult& result = *r.result;
  ordered_json epochs = ordered_json::array();
  for (const EpochResult& e : result.epochs) {
    epochs.push_back({{"epoch", e.epoch},
                      {"loss", e.loss},
                      {"accuracy", or_null(e.accuracy)},
                      {"validation_loss", e.validation_loss},
                      {"validation_accuracy", e.validation_accuracy},
                      {"seconds", e.seconds > 0 ? ordered_json(e.seconds) : ordered_json(nullptr)}});
    for (const SpikingActivity& layer : e.activity)
      epochs.back()["activity"].push_back(
          {{"firing", layer.firing}, {"listed", layer.listed}, {"dropped", layer.dropped}});
  }
  json["finished"] = result.finished;
  json["epochs"] = epochs;
  json["best_epoch"] = result.best_epoch == 0 ? ordered_json(nullptr) : ordered_json(result.best_epoch);
  json["test_loss"] = or_null(result.test_loss);
  json["test_accuracy"] = or_null(result.test_accuracy);
  json["steps"] = result.step;
  json["resumed_from_step"] = resumed_from;
  json["seconds"] = result.seconds;
  json["step_seconds"] = result.step_seconds;
  if (!r.modelled) return;
  json["step_cycles"] = result.step_cycles;
  json["evaluation_cycles"] = result.evaluation_cycles;
  json["cycles"] = result.cycles;
}

ordered_json json_of(const report::Interval& accuracy) {
  ordered_json json = {{"mean", accuracy.mean}};
  if (std::isfinite(accuracy.margin))
    json.update({{"margin", accuracy.margin}, {"confidence", report::kConfidence}});
  return json;
}

ordered_json json_of(const report::SweepPoint& point) {
  return {{"batch", point.batch},
          {"seeds", point.seeds},
          {"steps_per_epoch", point.steps_per_epoch},
          {"test_accuracies", point.accuracies},
          {"test_accuracy", json_of(point.accuracy)},
          {"epoch_seconds", or_null(point.epoch_seconds)}};
}

}  // namespace

ordered_json json_of(const RunOptions& options, const char* samples, const Trainer& trainer,
                     const TrainingReport& report, uint64_t resumed_from) {
  ordered_json result = {{"settings", io::parse_ordered_json(trainer.settings_json())},
                         {samples, report.data},
                         {"machine", options.machine},
                         {"tiles", report.tiles},
                         {"isa", name_of(active_isa())},
                         {"parameters", report.parameters},
                         {"steps_per_epoch", report.steps_per_epoch},
                         {"estimate", options.estimate}};
  if (report.result) add_result(result, report, resumed_from);
  result["predicted_seconds"] = report.predicted_seconds();
  add_costs(result, report, report.phases[0],
            report.result ? report.result->measured : std::vector<double>());
  return result;
}

void add_costs(ordered_json& json, const CostReport& report, const PhaseCosts& phase,
               const std::vector<double>& measured) {
  json["step"] = json_of(report, phase.step);
  json["step"]["operations"] = operations_of(report, phase, measured);
  json["evaluation"] = json_of(report, phase.evaluation);
}

std::string json(std::vector<ordered_json> trainings, const std::vector<report::SweepPoint>& points,
                 const char* command) {
  ordered_json all = {{"schema", 1}, {"command", command}, {"results", std::move(trainings)}};
  for (const report::SweepPoint& point : points) all["sweep"].push_back(json_of(point));
  if (points.size() == 1) all["test_accuracy"] = json_of(points[0].accuracy);
  return json_text(all) + "\n";
}

std::string summary_of_run(const report::SweepRun& run) {
  const TrainingResult& result = *run.report.result;
  return fmt::format("batch {}, seed {}: test accuracy {:.2f} %, loss {:.4f}, epoch {}; step {}\n", run.batch,
                     run.seed, 100 * result.test_accuracy.value(), result.test_loss.value(),
                     result.best_epoch,
                     result.steps_run > 0 ? value_text(result.step_seconds, Unit::seconds) : "earlier");
}

std::string summary_of(const std::vector<report::SweepPoint>& points) {
  if (points.size() > 1) return "\n" + sweep_table(points).text();
  return fmt::format("test accuracy {}, mean of {} seeds and its 95 % confidence interval\n",
                     accuracy_text(points[0].accuracy), points[0].seeds.size());
}

std::string heading(const TrainingReport& r, uint32_t batch) {
  return fmt::format("{}\n{}, {} parameters\n{}, {} steps per epoch with batches of {}\n", r.data, r.network,
                     report::count_text(r.parameters), r.machine, report::count_text(r.steps_per_epoch),
                     batch);
}

std::string summary(const TrainingReport& r) {
  const TrainingResult& result = *r.result;
  std::string text;
  if (result.best_epoch != 0)
    text += fmt::format("\nbest validation accuracy {:.2f} %, epoch {}\n",
                        100 * result.epochs[result.best_epoch - 1].validation_accuracy, result.best_epoch);
  if (result.test_accuracy)
    text +=
        fmt::format("test accuracy {:.2f} %, loss {:.4f}\n", 100 * *result.test_accuracy, *result.test_loss);
  if (result.steps_run > 0)
    text += fmt::format("step {}{}, memory {}\n", value_text(result.step_seconds, Unit::seconds),
                        r.modelled
                            ? fmt::format(" on {}: {}", r.machine,
                                          value_text(static_cast<double>(result.step_cycles), Unit::cycles))
                            : "",
                        base::bytes_text(r.most_bytes()));
  return text;
}

std::string estimate(const CostReport& r) {
  std::string text;
  for (const PhaseCosts& phase : r.phases) {
    if (!phase.name.empty()) text += fmt::format("\nwith {}:\n", phase.name);
    text += fmt::format("\n{}\n{}", memory_table(r, phase).text(), operations_table(r, phase).text());
  }
  return text + fmt::format("\ntraining and evaluation: {}{}\n",
                            value_text(r.predicted_seconds(), Unit::seconds),
                            r.modelled ? " at the machine's clock" : ", predicted");
}

std::string printed(const RunOptions& options, const CostReport& r) {
  if (options.print != "passes") return "";
  std::string text;
  for (const PhaseCosts& phase : r.phases) {
    if (!phase.name.empty()) text += fmt::format("\nwith {}:\n", phase.name);
    text += fmt::format("\n{}", report::passes_table(phase.step.passes).text());
  }
  return text;
}

bool continues(const RunOptions& r) {
  if (!r.resume) return false;
  if (std::filesystem::exists(r.checkpoint)) return true;
  complain(fmt::format("{} does not exist yet: training starts from the beginning", r.checkpoint));
  return false;
}

std::string stopped_text(const RunOptions& r, const std::string& where) {
  return fmt::format("interrupted {}{}", where,
                     r.checkpoint.empty()
                         ? ", without a checkpoint"
                         : fmt::format("; continue with --checkpoint {} --resume", r.checkpoint));
}

int complain_of_overflow(const CostReport& report) {
  for (const PhaseCosts& phase : report.phases)
    for (const graph::RunCost* cost : {&phase.step, &phase.evaluation}) {
      if (cost->overflow.empty()) continue;
      complain(phase.name.empty() ? cost->overflow : fmt::format("with {}: {}", phase.name, cost->overflow));
      return 1;
    }
  return 0;
}

}  // namespace tessera::cli
