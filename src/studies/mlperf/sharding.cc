// Replicated tensor sharding: the optimizer's state of BERT-large, divided among replicas.
#include <fmt/format.h>
#include <tessera/graph.h>

#include <string>
#include <string_view>
#include <vector>

#include "machine/model/machine.h"
#include "report/axis.h"
#include "studies/mlperf/bert_steps.h"
#include "studies/mlperf/rows.h"
#include "studies/mlperf/state_bytes.h"
#include "studies/mlperf/study.h"
#include "train/bert/extrapolation.h"
#include "train/bert/network.h"

namespace tessera::studies::mlperf {
namespace {

constexpr std::string_view kSharding = "sharding";

std::string key_of_state(const std::string& numbers) {
  return fmt::format("optimizer's state of BERT-large, {}", numbers);
}

/// The state of BERT-large on one chip, computed from its graph alone.
Result state_of_bert(const std::string& numbers) {
  BertSetup setup = bert_setups().front();
  setup.numbers = numbers;
  const PretrainingSettings settings = train::undivided(settings_of(setup));
  return state_result(train::pretraining_graph(settings, pack_of(kSequencesOfPack, 1)));
}

std::vector<Cell> sharding_cells(const machine::Machine& machine, const Request&) {
  std::vector<Cell> all;
  if (machine.kind == machine::Kind::host) return all;
  for (const char* numbers : {"mlperf-v1", "mlperf-v2"})
    all.push_back({key_of_state(numbers), 1, [=](const Setting&) { return state_of_bert(numbers); }});
  return all;
}

const Result* find_state(const Study& study, const std::string& numbers) {
  const Part* part = study.modelled();
  return part == nullptr ? nullptr : part->find(kSharding, key_of_state(numbers));
}

std::vector<Figure> state_figures(const Study& study) {
  Figure figure{
      "The optimizer's state of BERT-large, divided among replicas",
      "LAMB's two moments, FP32 in v1.0 and FP16 in v2.0. State of parameters of at least 8,192 elements is "
      "divided; with the rest each replica has all of it. Off chip it is read and written once a step.",
      {"setup", "replicas", "moments", "whole state", "of a replica", "of a chip", "off chip a step"}};
  for (const BertSetup& setup : bert_setups()) {
    const Result* state = find_state(study, setup.numbers);
    if (state == nullptr) continue;
    const double whole = state_of_replica(*state, 1), part = state_of_replica(*state, setup.replicas);
    const double of_chip = part / static_cast<double>(setup.layers.size());
    const double rate = machine::find(setup.machine).streaming_bytes_per_second;
    figure.rows.push_back(
        {{setup.name},
         {fmt::format("{}", setup.replicas)},
         {setup.numbers == "mlperf-v1" ? "FP32" : "FP16"},
         {report::value_text(whole, report::Unit::bytes)},
         {report::value_text(part, report::Unit::bytes)},
         {report::value_text(of_chip, report::Unit::bytes)},
         {setup.offload ? report::value_text(2 * of_chip / rate, report::Unit::seconds) : ""}});
  }
  return {figure};
}

Ours divided_memory(const Study& study) {
  const BertSetup& setup = bert_setups().front();
  const Result* state = find_state(study, setup.numbers);
  if (state == nullptr) return if_run({}, Origin::modelled, "");
  return in_words(
      Origin::modelled,
      fmt::format("{} of state for a replica instead of {}, with the {} replicas of v1.0 on a POD16",
                  report::value_text(state_of_replica(*state, setup.replicas), report::Unit::bytes),
                  report::value_text(state_of_replica(*state, 1), report::Unit::bytes), setup.replicas));
}

const std::vector<Beside>& beside_sharding() {
  static const std::vector<Beside> all = {
      {"memory", divided_memory},
      {"streaming memory",
       [](const Study&) {
         return in_words(
             Origin::modelled,
             "--shard and --offload together: each chip has its part in its own streaming memory");
       }},
      {"larger models",
       [](const Study&) {
         return in_words(
             Origin::modelled,
             "--shard-weights and --shard-gradients divide parameters and sums of gradients too; no larger "
             "model was published here");
       }},
  };
  return all;
}

std::vector<Row> sharding_rows(const Study& study) { return rows_of(study, kSharding, beside_sharding()); }

std::vector<Figure> sharding_figures(const Study& study) {
  std::vector<Figure> all = state_figures(study);
  all.push_back(figure_of("Replicated tensor sharding", "", sharding_rows(study)));
  return all;
}

std::vector<Comparison> sharding_comparisons(const Study& study) {
  return comparisons_of(sharding_rows(study), "sharding");
}

}  // namespace

Section sharding_section() {
  return {.name = kSharding,
          .title = "Replicated tensor sharding",
          .cells = sharding_cells,
          .figures = sharding_figures,
          .comparisons = sharding_comparisons};
}

}  // namespace tessera::studies::mlperf
