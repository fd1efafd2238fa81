#include "cli/bert_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/isa.h"
#include "base/memory.h"
#include "cli/output.h"
#include "cli/train_output.h"
#include "io/json_text.h"
#include "report/axis.h"
#include "train/bert/settings.h"

namespace tessera::cli {
namespace {

using nlohmann::ordered_json;
using report::PretrainingReport;
using report::Unit;
using report::value_text;

std::string phase_text(const BertTrainer& trainer, size_t number) {
  const PretrainingPhase& phase = trainer.settings().phases[number];
  const PretrainingData& data = trainer.training_data(number);
  const pack::Packing& packing = data.packing();
  return fmt::format(
      "{} tokens: {} sequences in {} packs, {:.2f} in each, {:.1f} % padding; {} steps of {} packs",
      phase.length, report::count_text(data.sequences()), report::count_text(packing.packs()),
      packing.packing_factor(), 100 * (1 - packing.efficiency()), report::count_text(phase.steps),
      phase.packs);
}

report::PhaseCosts costs_of(const BertTrainer& trainer, size_t number) {
  const std::vector<PretrainingPhase>& phases = trainer.settings().phases;
  return {.name = phases.size() == 1 ? "" : fmt::format("packs of {} tokens", phases[number].length),
          .steps = phases[number].steps,
          .evaluations = trainer.evaluations(number) * trainer.evaluation_batches(number),
          .step = trainer.step_cost(number),
          .evaluation = trainer.evaluation_cost(number),
          .operations = report::names_of_operations(trainer.graph(number))};
}

ordered_json json_of(const BertTrainer& trainer, const PretrainingReport& report, size_t phase) {
  const PretrainingData& data = trainer.training_data(phase);
  ordered_json json = {{"length", data.settings().length},
                       {"sequences", data.sequences()},
                       {"tokens", data.tokens()},
                       {"packs", data.packing().packs()},
                       {"packing_factor", data.packing().packing_factor()},
                       {"efficiency", data.packing().efficiency()},
                       {"steps_per_epoch", trainer.steps_per_epoch(phase)},
                       {"steps", report.phases[phase].steps}};
  add_costs(json, report, report.phases[phase]);
  return json;
}

void add_result(ordered_json& json, const PretrainingReport& report, uint64_t resumed_from) {
  const PretrainingResult& result = *report.pretrained;
  json["finished"] = result.finished;
  json["evaluations"] = ordered_json::array();
  for (const PretrainingEvaluation& e : result.evaluations) {
    json["evaluations"].push_back(train::json_of(e));
    json["evaluations"].back()["seconds"] = e.seconds > 0 ? ordered_json(e.seconds) : ordered_json(nullptr);
  }
  json["steps"] = result.step;
  json["sequences"] = result.sequences;
  json["resumed_from_step"] = resumed_from;
  json["seconds"] = result.seconds;
  json["step_seconds"] = result.step_seconds;
  json["tokens_per_second"] = result.tokens_per_second;
  json["sequences_per_second"] = result.sequences_per_second;
  if (report.modelled) json["cycles"] = result.cycles;
}

}  // namespace

PretrainingReport report_of(const BertRequest& r, const BertTrainer& trainer, const Machine& machine,
                            const TextSplit& text) {
  PretrainingReport report;
  report.network =
      fmt::format("BERT-{}, numbers {}, {}", r.size, r.settings.numbers, name_of(r.settings.optimizer));
  report.data = fmt::format(
      "{}: {} tokens in {} documents for training, {} in {} held out", text.train->name,
      report::count_text(text.train->tokens.size()), report::count_text(text.train->count()),
      report::count_text(text.held_out->tokens.size()), report::count_text(text.held_out->count()));
  report.machine = report::machine_text(machine);
  report.tiles = machine.tiles();
  report.modelled = !machine.is_host();
  report.clock_hz = machine.clock_hz();
  report.parameters = trainer.parameters();
  for (size_t i = 0; i < trainer.settings().phases.size(); ++i) {
    report.packs.push_back(phase_text(trainer, i));
    report.phases.push_back(costs_of(trainer, i));
  }
  const auto settings = io::parse_ordered_json(trainer.settings_json());
  for (const auto& [key, value] : settings.items())
    report.settings.emplace_back(key, value.is_string() ? value.get<std::string>() : io::json_text(value));
  report.settings.emplace_back("machine", report.machine);
  report.settings.emplace_back("instruction set", name_of(active_isa()));
  return report;
}

std::string json_of(const BertRequest& r, const BertTrainer& trainer, const PretrainingReport& report,
                    uint64_t resumed_from) {
  ordered_json result = {{"settings", io::parse_ordered_json(trainer.settings_json())},
                         {"text", report.data},
                         {"machine", r.machine},
                         {"tiles", report.tiles},
                         {"isa", name_of(active_isa())},
                         {"parameters", report.parameters},
                         {"phases", ordered_json::array()},
                         {"estimate", r.estimate}};
  if (r.settings.estimate_packs) result["estimate_packs"] = true;
  for (size_t i = 0; i < trainer.settings().phases.size(); ++i)
    result["phases"].push_back(json_of(trainer, report, i));
  if (report.pretrained) add_result(result, report, resumed_from);
  result["predicted_seconds"] = report.predicted_seconds();
  return json_text({{"schema", 1}, {"command", "train bert"}, {"results", {result}}}) + "\n";
}

std::string heading(const PretrainingReport& r) {
  std::string text = fmt::format("{}\n{}, {} parameters\n{}\n", r.data, r.network,
                                 report::count_text(r.parameters), r.machine);
  for (const std::string& line : r.packs) text += line + "\n";
  return text;
}

std::string summary(const PretrainingReport& r) {
  const PretrainingResult& result = *r.pretrained;
  if (result.steps_run == 0) return "";
  return fmt::format("\n{} sequences and {} tokens per second; step {}{}, memory {}\n",
                     value_text(result.sequences_per_second), value_text(result.tokens_per_second),
                     value_text(result.step_seconds, Unit::seconds),
                     r.modelled ? fmt::format(" on {}", r.machine) : "", base::bytes_text(r.most_bytes()));
}

}  // namespace tessera::cli
