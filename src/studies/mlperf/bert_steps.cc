#include "studies/mlperf/bert_steps.h"

#include <fmt/format.h>
#include <tessera/estimate.h>
#include <tessera/machine.h>
#include <tessera/pipeline.h>
#include <tessera/pretraining_plan.h>
#include <tessera/run_cost.h>
#include <tessera/training_settings.h>

#include <algorithm>
#include <utility>

#include "machine/model/machine.h"
#include "train/bert/extrapolation.h"
#include "train/bert/network.h"

namespace tessera::studies::mlperf {
namespace {

constexpr uint32_t kPackTokens = 512;

/// Replicas of eight chips, as in v1.0 with 64 chips.
BertSetup on_gc200(std::string name, std::string machine, uint32_t replicas, uint32_t micro_batches) {
  return {.name = std::move(name),
          .machine = std::move(machine),
          .replicas = replicas,
          .micro_batches = micro_batches,
          .layers = {0, 3, 3, 3, 3, 4, 4, 4}};
}

/// Replicas of eight chips, as in v2.0 with 64 chips.
BertSetup on_bow(std::string name, std::string machine, uint32_t replicas, uint32_t micro_batches) {
  return {.name = std::move(name),
          .machine = std::move(machine),
          .replicas = replicas,
          .micro_batches = micro_batches,
          .packs = 3,
          .numbers = "mlperf-v2",
          .layers = {0, 3, 3, 3, 4, 3, 4, 3},
          .feed_forwards = {0, 3, 3, 3, 3, 4, 3, 4},
          .head_layers = 1,
          .head_feed_forwards = 1};
}

BertSetup assumed(BertSetup setup) {
  setup.is_assumed = true;
  return setup;
}

std::vector<BertSetup> all_setups() {
  BertSetup pod16 = on_gc200("v1.0 POD16", "pod16", 4, 192);
  pod16.layers = {3, 7, 7, 7};
  pod16.offload = true;
  BertSetup bow_pod16 = on_bow("v2.0 POD16", "bow_pod16", 2, 256);
  bow_pod16.layers = {0, 3, 4, 3, 4, 3, 4, 3};
  bow_pod16.feed_forwards = {0, 3, 3, 4, 3, 4, 3, 3};
  bow_pod16.head_layers = 0;
  return {pod16,
          on_gc200("v1.0 POD64", "pod64", 8, 96),
          assumed(on_gc200("v1.1 POD128", "pod128", 16, 48)),
          bow_pod16,
          on_bow("v2.0 POD64", "bow_pod64", 8, 96),
          assumed(on_bow("v2.0 POD128", "bow_pod128", 16, 48)),
          assumed(on_bow("v2.0 POD256", "bow_pod256", 32, 24))};
}

/// Includes the memory that a program lacks on a machine, and why it does not fit.
Result result_of_cost(const PretrainingCost& cost, const Machine& machine) {
  Result result;
  result.fits = cost.fits;
  result.values = {{"seconds", cost.seconds},
                   {"tile_bytes", static_cast<double>(cost.fullest_tile_bytes)},
                   {"streaming_bytes", static_cast<double>(cost.streaming_bytes)},
                   {"lacking_tile_bytes", static_cast<double>(cost.lacking_tile_bytes)}};
  if (!cost.fits)
    result.reason = !cost.overflow.empty() ? cost.overflow
                                           : fmt::format("the fullest tile needs {} bytes of {}",
                                                         cost.fullest_tile_bytes, machine.tile_bytes());
  return result;
}

/// Moves layers on the head's stage to the first stage; layers are not divided into parts.
PretrainingSettings with_whole_layers(PretrainingSettings s) {
  if (!s.stage_layers.empty()) s.stage_layers.front() += s.head_layers;
  s.stage_feed_forwards.clear();
  s.head_layers = s.head_feed_forwards = 0;
  return s;
}

std::string key_of_step(const BertSetup& setup, uint32_t sequences, bool is_whole) {
  return fmt::format("{} on {}, at most {} in a pack, {}", setup.name, setup.machine, sequences,
                     is_whole ? "whole" : "extrapolated");
}

std::optional<ModelledStep> find_step(const Study& study, const BertSetup& setup, uint32_t sequences,
                                      bool is_whole) {
  const Part* part = study.modelled();
  const Result* result =
      part == nullptr ? nullptr : part->find(kSteps, key_of_step(setup, sequences, is_whole));
  const std::optional<double> seconds = result == nullptr ? std::nullopt : result->value("seconds");
  return seconds ? std::optional(ModelledStep{*seconds, is_whole, result}) : std::nullopt;
}

}  // namespace

const std::vector<BertSetup>& bert_setups() {
  static const std::vector<BertSetup> all = all_setups();
  return all;
}

const BertSetup* find_setup(std::string_view name) {
  const auto found = std::ranges::find(bert_setups(), name, &BertSetup::name);
  return found == bert_setups().end() ? nullptr : &*found;
}

const BertSetup* setup_of(std::string_view round, uint32_t chips) {
  const bool is_bow = round == "v2.0";
  for (const BertSetup& setup : bert_setups())
    if (setup.chips() == chips && setup.machine.starts_with("bow") == is_bow) return &setup;
  return nullptr;
}

graph::BertBatch pack_of(uint32_t sequences, uint32_t packs) {
  return {.packs = packs,
          .tokens = kPackTokens,
          .sequences = sequences,
          .predictions = 76 + (sequences == 1 ? 0 : sequences)};
}

PretrainingSettings settings_of(const BertSetup& setup, const graph::BertConfig& config) {
  PretrainingSettings s;
  s.config = config;
  s.numbers = setup.numbers;
  const bool is_first_version = setup.numbers == "mlperf-v1";
  if (is_first_version) s.config.attention_probs_dropout_prob = 0;
  s.average = is_first_version ? graph::PackedAverage::pack : graph::PackedAverage::token;
  s.bias_correction = false;
  s.phases[0].length = kPackTokens;
  s.phases[0].packs = setup.packs_of_step();
  s.stages = static_cast<uint32_t>(setup.layers.size());
  s.stage_layers = setup.layers;
  s.stage_feed_forwards = setup.feed_forwards;
  s.head_layers = setup.head_layers;
  s.head_feed_forwards = setup.head_feed_forwards;
  s.pipeline = graph::PipelineKind::one_forward_one_backward;
  s.recompute = true;
  s.micro_batches = setup.micro_batches;
  s.replicas = setup.replicas;
  s.shard_from = kLargeValue;
  if (setup.offload) s.offload_from = kLargeValue;
  return s;
}

uint64_t input_bytes(const graph::BertBatch& step) {
  return uint64_t{step.packs} * (4 * step.tokens + 2 * step.predictions + 2 * step.sequences) *
         sizeof(uint32_t);
}

double forward_flops(const graph::BertConfig& config, const graph::BertBatch& step) {
  const double hidden = config.hidden_size, inner = config.intermediate_size, tokens = step.tokens;
  const double of_token =
      config.num_hidden_layers * (8 * hidden * hidden + 4 * hidden * inner + 4 * hidden * tokens);
  const double of_prediction = 2 * hidden * (hidden + config.vocab_size);
  const double of_sequence = 2 * hidden * hidden;
  return step.packs * (tokens * of_token + step.predictions * of_prediction + step.sequences * of_sequence);
}

Result extrapolate_step(const BertSetup& setup, uint32_t sequences, const PretrainingSettings& settings) {
  const Machine machine = Machine::find(setup.machine);
  const PretrainingSettings s = with_whole_layers(settings);
  train::StepExtrapolation extrapolation(s, pack_of(sequences, 1), machine, kLargeValue, 1,
                                         [](const std::string&) { return true; });
  const std::optional<PretrainingCost> cost = extrapolation.cost_of(s);
  if (!cost) return {.fits = false, .reason = "an operation alone takes more memory than a chip has"};
  return result_of_cost(*cost, machine);
}

Result estimate_step(const BertSetup& setup, uint32_t sequences, const PretrainingSettings& settings) {
  const Machine machine = Machine::find(setup.machine);
  const graph::BertBatch step = pack_of(sequences, setup.packs_of_step());
  const graph::RunCost cost =
      graph::estimate(train::pretraining_graph(settings, step), machine, {.host_io = true});
  uint64_t streaming = cost.chips.empty() ? cost.streaming_bytes : 0;
  for (const graph::ChipCost& chip : cost.chips) streaming = std::max(streaming, chip.streaming_bytes);
  Result result = result_of_cost(train::with_lack({.seconds = cost.seconds_without_host_io(),
                                                   .fullest_tile_bytes = cost.fullest_tile_bytes,
                                                   .fits = cost.overflow.empty(),
                                                   .overflow = cost.overflow,
                                                   .streaming_bytes = streaming},
                                                  machine),
                                 machine);
  const auto enter = [&](const std::string& name, uint64_t value) {
    result.values[name] = static_cast<double>(value);
  };
  for (const char* purpose : {"stash", "optimizer"}) {
    const auto found = cost.bytes.find(purpose);
    enter(fmt::format("{}_bytes", purpose), found == cost.bytes.end() ? 0 : found->second);
  }
  enter("total_bytes", cost.total_bytes);
  if (cost.host_io) {
    enter("host_bytes", cost.host_io->bytes_in + cost.host_io->bytes_out);
    result.values["host_seconds"] = cost.host_io->seconds;
  }
  return result;
}

Cell cell_of_step(const BertSetup& setup, uint32_t sequences, bool is_whole) {
  return {key_of_step(setup, sequences, is_whole), is_whole ? 90.0 : 20.0, [=](const Setting&) {
            const PretrainingSettings settings = settings_of(setup);
            return is_whole ? estimate_step(setup, sequences, settings)
                            : extrapolate_step(setup, sequences, settings);
          }};
}

std::optional<ModelledStep> step_of(const Study& study, const BertSetup& setup) {
  const std::optional<ModelledStep> whole = find_step(study, setup, kSequencesOfPack, true);
  return whole ? whole : find_step(study, setup, kSequencesOfPack, false);
}

std::optional<ModelledStep> extrapolated_step_of(const Study& study, const BertSetup& setup,
                                                 uint32_t sequences) {
  return find_step(study, setup, sequences, false);
}

double host_seconds(const BertSetup& setup, uint32_t sequences) {
  const machine::Machine pod = machine::find(setup.machine);
  return pod.host_transfer_seconds(input_bytes(pack_of(sequences, setup.packs_of_step())));
}

}  // namespace tessera::studies::mlperf
