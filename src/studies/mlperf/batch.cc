// Local batches: memory for activations of micro-batches in flight, and the savings by accumulation.
#include <fmt/format.h>
#include <tessera/estimate.h>
#include <tessera/machine.h>
#include <tessera/run_cost.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "report/axis.h"
#include "studies/mlperf/bert_steps.h"
#include "studies/mlperf/local_batch.h"
#include "studies/mlperf/rows.h"
#include "studies/mlperf/study.h"
#include "train/bert/network.h"

namespace tessera::studies::mlperf {
namespace {

constexpr std::string_view kBatch = "batch";
constexpr LocalBatch kLocalBatches[] = {{1, true}, {2, true}, {4, true}, {2, false}};
constexpr uint32_t kLayers = 2;

std::string key_of_local_batch(const LocalBatch& batch) {
  return fmt::format("{} layers of BERT-large on 2 chips, {} packs in a micro-batch, {}", kLayers,
                     batch.packs, batch.recomputes ? "recomputed" : "kept");
}

std::vector<Cell> batch_cells(const machine::Machine& machine, const Request&) {
  std::vector<Cell> all;
  if (machine.kind == machine::Kind::host) return all;
  for (const LocalBatch& batch : kLocalBatches)
    all.push_back({key_of_local_batch(batch), 10, [=](const Setting&) {
                     graph::BertConfig config = graph::BertConfig::named("large");
                     config.num_hidden_layers = kLayers;
                     return estimate_local_batch(config, batch);
                   }});
  return all;
}

const Result* find_local_batch(const Study& study, const LocalBatch& batch) {
  const Part* part = study.modelled();
  return part == nullptr ? nullptr : part->find(kBatch, key_of_local_batch(batch));
}

std::string share_of_update(const Result& result, uint32_t micro_batches) {
  return fmt::format("{:.2f} %", 100 * update_share(result, micro_batches));
}

std::vector<Figure> local_batch_figures(const Study& study) {
  Figure figure{
      fmt::format("Local batches: {} layers of BERT-large on two stages of a chip each", kLayers),
      "FP16, 1f1b, two replicas. Stashes are what stages keep of the micro-batches in flight, three on the "
      "first stage, of both chips together. Updates: sums over replicas and the optimizer, of a step of so "
      "many micro-batches.",
      {"packs of a micro-batch", "backward pass has", "stashes", "fullest tile", "ms per pack",
       "updates, 1 micro-batch", "16", "192"}};
  for (const LocalBatch& batch : kLocalBatches) {
    const Result* result = find_local_batch(study, batch);
    if (result == nullptr) continue;
    figure.rows.push_back(
        {{fmt::format("{}", batch.packs)},
         {batch.recomputes ? "inputs of layers" : "all"},
         {report::value_text(result->value("stash_bytes").value_or(0), report::Unit::bytes)},
         {report::count_text(static_cast<uint64_t>(result->value("tile_bytes").value_or(0)))},
         {fmt::format("{:.3f}", 1e3 * result->value("pass_seconds").value_or(0) / batch.packs)},
         {share_of_update(*result, 1)},
         {share_of_update(*result, 16)},
         {share_of_update(*result, 192)}});
  }
  return {figure};
}

Ours stashes_of_batches(const Study& study) {
  const Result *small = find_local_batch(study, {1, true}), *large = find_local_batch(study, {4, true});
  if (small == nullptr || large == nullptr) return if_run({}, Origin::modelled, "");
  return in_words(
      Origin::modelled,
      fmt::format("{} with 1 pack in a micro-batch, {} with 4, in {} layers",
                  report::value_text(small->value("stash_bytes").value_or(0), report::Unit::bytes),
                  report::value_text(large->value("stash_bytes").value_or(0), report::Unit::bytes), kLayers));
}

Ours local_batch_of_bert(const Study&) {
  const BertSetup* setup = find_setup("v1.0 POD16");
  return modelled(setup->packs, "of v1.0, which is modelled so; v2.0 has micro-batches of 3");
}

Ours saved_updates(const Study& study) {
  const Result* result = find_local_batch(study, {2, true});
  if (result == nullptr) return if_run({}, Origin::modelled, "");
  return in_words(Origin::modelled,
                  fmt::format("updates take {} of a step of one micro-batch, {} of one of 192",
                              share_of_update(*result, 1), share_of_update(*result, 192)));
}

const std::vector<Beside>& beside_batch() {
  static const std::vector<Beside> all = {{"stashed activations", stashes_of_batches},
                                          {"local batch of BERT", local_batch_of_bert},
                                          {"accumulation", saved_updates}};
  return all;
}

std::vector<Row> batch_rows(const Study& study) { return rows_of(study, kBatch, beside_batch()); }

std::vector<Figure> batch_figures(const Study& study) {
  std::vector<Figure> all = local_batch_figures(study);
  all.push_back(figure_of("Local batches", "", batch_rows(study)));
  return all;
}

std::vector<Comparison> batch_comparisons(const Study& study) {
  return comparisons_of(batch_rows(study), "local batches");
}

}  // namespace

Result estimate_local_batch(const graph::BertConfig& config, const LocalBatch& batch) {
  constexpr uint32_t kStagesOfReplica = 2;
  const Machine machine = Machine::find("m2000");
  BertSetup setup{
      .name = "",
      .machine = machine.name(),
      .replicas = machine.chips() / kStagesOfReplica,
      .micro_batches = 2 * (kStagesOfReplica + 1),  // twice as many as are in flight
      .packs = batch.packs,
      .layers = std::vector<uint32_t>(kStagesOfReplica, config.num_hidden_layers / kStagesOfReplica)};
  PretrainingSettings settings = settings_of(setup, config);
  settings.recompute = batch.recomputes;
  const graph::RunCost cost = graph::estimate(
      train::pretraining_graph(settings, pack_of(kSequencesOfPack, setup.packs_of_step())), machine);
  Result result;
  result.fits = cost.overflow.empty();
  result.reason = cost.overflow;
  const auto stash = cost.bytes.find("stash");
  result.values["stash_bytes"] = stash == cost.bytes.end() ? 0 : static_cast<double>(stash->second);
  result.values["tile_bytes"] = static_cast<double>(cost.fullest_tile_bytes);
  double passes = 0, once = 0;
  for (const graph::ChipSpan& span : cost.lanes.at(0).spans) {
    using Kind = graph::ChipSpan::Kind;
    const double seconds = (span.end - span.begin) / machine.clock_hz();
    if (span.kind == Kind::collective || span.kind == Kind::other)
      once += seconds;
    else if (span.kind != Kind::waiting)
      passes += seconds;
  }
  result.values["pass_seconds"] = passes / setup.micro_batches;
  result.values["once_seconds"] = once;
  return result;
}

double update_share(const Result& result, uint32_t micro_batches) {
  const double once = result.value("once_seconds").value_or(0);
  const double passes = micro_batches * result.value("pass_seconds").value_or(0);
  return once + passes > 0 ? once / (once + passes) : 0;
}

Section batch_section() {
  return {.name = kBatch,
          .title = "Local batches and accumulation",
          .cells = batch_cells,
          .figures = batch_figures,
          .comparisons = batch_comparisons};
}

}  // namespace tessera::studies::mlperf
