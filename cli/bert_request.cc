#include "cli/bert_request.h"

#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/gradients.h>
#include <tessera/training_settings.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/bert_plan.h"
#include "cli/config.h"
#include "cli/option_parsing.h"
#include "cli/parse.h"
#include "io/atomic_file.h"

namespace tessera::cli {
namespace {

constexpr uint32_t kMostDocuments = 10'000'000;

/// "4", or "4/3": attention parts and feed-forward parts.
StageLayers parse_layers(const std::string& option, const std::string& text) {
  const std::vector<std::string> parts = parse_names(text, '/');
  if (parts.size() > 2)
    throw invalid_value(option, text,
                        "expected layers, such as 4, or attention and feed-forward parts, such as 4/3");
  return {parse_count(option, parts.front()), parse_count(option, parts.back())};
}

/// "stochastic", or "parameters=stochastic,state=nearest"
void set_rounding(const std::string& text, PretrainingSettings& settings) {
  using graph::Rounding;
  using graph::Roundings;
  const std::map<std::string, Rounding> roundings = {{"nearest", Rounding::nearest},
                                                     {"stochastic", Rounding::stochastic}};
  const std::map<std::string, std::optional<Rounding> Roundings::*> stores = {
      {"parameters", &Roundings::parameters},
      {"partials", &Roundings::partials},
      {"state", &Roundings::state}};
  if (const auto of_all = roundings.find(text); of_all != roundings.end()) {
    settings.rounding = of_all->second;
    return;
  }
  for (const std::string& item : parse_names(text)) {
    const size_t end = std::min(item.find('='), item.size());
    const auto store = stores.find(item.substr(0, end));
    const auto rounding = roundings.find(item.substr(std::min(end + 1, item.size())));
    if (store == stores.end() || rounding == roundings.end())
      throw invalid_value("--rounding", text,
                          "choose from nearest, stochastic, or one of them for each of parameters, state, "
                          "partials, such as parameters=stochastic");
    settings.roundings.*store->second = rounding->second;
  }
}

graph::LossScale parse_loss_scale(const std::string& text) {
  if (text == "dynamic") return {};
  const auto scale = parse_number<double>(text);
  if (!scale || !std::isfinite(*scale))
    throw invalid_value("--loss-scale", text, "expected a number or dynamic");
  return {.initial = *scale, .grow_after = 0};
}

void add_stage_options(CLI::App& command, BertRequest& r) {
  command.add_option_function<std::string>(
      "--stages",
      [&r](const std::string& text) {
        const std::vector<std::string> items = parse_names(text);
        r.settings.stages = static_cast<uint32_t>(items.size());
        r.stage_layers.clear();
        if (items.size() == 1) r.settings.stages = parse_count("--stages", text, 1);
        if (items.size() > 1)
          for (const std::string& item : items) r.stage_layers.push_back(parse_layers("--stages", item));
      },
      "Stages of layers, each on its own chips, or on the host on its own rank of mpirun: the number of "
      "stages; the number of layers of each stage, such as 3,7,7,7; or, to split layers, the numbers of "
      "attention and feed-forward parts of each stage, such as 3,4/3,3/4 (default: 1)");
  add(
      command, "--head-layers", r.head_layers,
      [](const std::string& text) { return parse_layers("--head-layers", text); },
      "Number of the last layers, or of their parts, that lie with the prediction of masked tokens on the "
      "chips of the embeddings, in addition to --stages (default: 0)");
}

void add_model_options(CLI::App& command, BertRequest& r) {
  command.add_option("--size", r.size,
                     "Size of the model: tiny (default), mini, small, medium, base or large");
  add_real(command, "--dropout", r.dropout,
           "Probability of dropout of hidden values and attention probabilities (default: 0.1)");
  add_real(command, "--attention-dropout", r.attention_dropout,
           "Probability of dropout of attention probabilities (default: as --dropout)");
  add_choice<graph::PackedAverage>(
      command, "--average", r.settings.average,
      {graph::PackedAverage::token, graph::PackedAverage::sequence, graph::PackedAverage::pack},
      "Unit over which the loss is averaged: token (default), sequence or pack");
  command.add_option(
      "--numbers", r.settings.numbers,
      "Types, rounding and loss scale: fp32 (default), bf16, mlperf-v1, mlperf-v2 or mlperf-slides");
  command.add_option_function<std::string>(
      "--rounding", [&r](const std::string& text) { set_rounding(text, r.settings); },
      "Rounding of 16-bit parameters, moments and partial sums: nearest or stochastic, or one of these for "
      "each of parameters, state and partials, such as parameters=stochastic,state=nearest (default: as "
      "--numbers says)");
  add_choice<Type>(command, "--partials", r.settings.partials,
                   {{"f32", Type::f32}, {"f16", Type::f16}, {"bf16", Type::bf16}},
                   "Type of partial sums of 16-bit products on tiles: f32, or the products' type, f16 or "
                   "bf16 (default: as --numbers says)");
  add_choice<Type>(
      command, "--sums", r.settings.sums, {{"f32", Type::f32}, {"f16", Type::f16}},
      "Type of sums of FP16 gradients over micro-batches, replicas and slices of the head: f32 or "
      "f16 (default: as --numbers says)");
  add(command, "--loss-scale", r.settings.loss_scale, parse_loss_scale,
      "Factor by which the loss is multiplied and gradients are divided: a number, or dynamic, which leaves "
      "out steps with gradients that are not finite (default: as --numbers says)");
}

void add_text_options(CLI::App& command, BertRequest& r) {
  command.add_option(
      "--data", r.data,
      "File of tokens, with 5 % of the documents held out, or folder with train.safetensors and "
      "test.safetensors, as python -m tessera.text writes them (default: synthetic text)");
  add_count(command, "--documents", r.synthetic.documents,
            "Number of documents of synthetic text (default: 1000)", kMostDocuments, 4);
  add_count(command, "--vocabulary", r.synthetic.vocabulary,
            "Number of different tokens of synthetic text (default: 2000)");
  add_counts(
      command, "--length", r.lengths,
      "Tokens per pack, and maximum length of a sequence (default: 128); with a list separated by commas, "
      "training has one phase for each",
      1);
  add_choice<bool>(command, "--pack", r.settings.packed, {{"optimal", true}, {"none", false}},
                   "optimal (default): packs filled with sequences; none: one padded sequence in each pack");
  add_count(command, "--max-per-pack", r.settings.max_per_pack,
            "Maximum number of sequences in a pack (default: any number)");
  add_counts(command, "--batch", r.batches,
             "Number of packs per step (default: 32), one for all lengths or one for each", 1);
  add_count(
      command, "--head-slices", r.settings.head_slices,
      "Maximum number of equal slices in which the logits of a micro-batch's masked tokens are computed one "
      "after the other, to take less memory (default: 1)");
  add_stage_options(command, r);
  add_choice<graph::PipelineKind>(
      command, "--pipeline", r.settings.pipeline,
      {graph::PipelineKind::sequential, graph::PipelineKind::grouped, graph::PipelineKind::interleaved,
       graph::PipelineKind::one_forward_one_backward, graph::PipelineKind::zero_bubble},
      "Order of micro-batches in the stages: sequential (default), grouped, interleaved, 1f1b or zb-h1");
  add_placement_options(command, r.settings, "layers");
  add_count(
      command, "--replicas", r.settings.replicas,
      "Number of replicas, on equal parts of the machine's chips or of the ranks of mpirun, among which a "
      "batch is divided (default: 1; with mpirun one for each rank, on the host one for each --stages "
      "ranks)");
  add_rank_options(command, r.ranks);
  add_large_values_flag(
      command, "offload-activations", r.settings.offload_activations_from,
      fmt::format("Also keep in streaming memory the values of at least {:L} elements that stages store for "
                  "later passes of micro-batches in flight",
                  kLargeValue));
  add_counts(command, "--steps", r.steps,
             "Number of steps, one for all lengths or one for each (default: as --epochs says)", 1);
  add_count(command, "--evaluate-every", r.settings.evaluate_every,
            "Number of steps between evaluations and checkpoints (default: an epoch of the first length)");
}

NamedFiles files_of_text(const BertRequest& r) {
  NamedFiles files = {{"--data", r.data}};
  if (std::filesystem::is_directory(r.data))
    for (const char* name : {"train.safetensors", "test.safetensors"})
      files.emplace_back("--data", (std::filesystem::path(r.data) / name).string());
  return files;
}

uint32_t item(const std::vector<uint32_t>& items, size_t phase) {
  return items.size() == 1 ? items[0] : items[phase];
}

}  // namespace

void add_bert_options(CLI::App& command, BertRequest& r) {
  add_config_option(command, kBertConfigs, r.configured);
  add_model_options(command, r);
  add_text_options(command, r);
  add_optimizer_options(command, r.settings, "default: lamb");
  add_run_options(command, r,
                  "Write a checkpoint after each evaluation, and when interrupted (.safetensors)");
  add_host_io_option(command, r.settings.host_io);
  command.add_flag("--estimate-packs", r.settings.estimate_packs,
                   "Let --estimate use the first batch's packs, in which tiles of a modelled machine skip "
                   "attention between sequences (default: packs of one sequence)");
  command.add_option("--init", r.init, "Begin with the parameters in this .safetensors file or folder");
  command.add_option("--save", r.save,
                     "Write the trained parameters with Hugging Face's names (.safetensors)");
  command.add_option("--trace", r.trace,
                     "Write a trace of the chips of a modelled machine during a step, for Perfetto or "
                     "chrome://tracing (.json)");
  command.add_flag(
      "--plan", r.plan,
      "Only search for the fastest division of a step of --batch packs among a modelled machine's "
      "chips: stages, replicas, micro-batches, recomputation, sharding and offload");
  add_count(
      command, "--plan-estimates", r.plan_estimates,
      fmt::format("With --plan: maximum number of whole networks that are estimated, in addition to the "
                  "division that options ask for (default: {})",
                  r.plan_estimates));
  add_seconds(command, "--plan-time-limit", r.plan_time_limit,
              "With --plan: seconds after which no estimate begins, except the estimate of the division that "
              "options ask for; small networks take at most half of this time (default: no limit)");
}

void check(const BertRequest& r, const CLI::App& command) {
  if (r.plan) check_plan_options(command);
  for (const char* option : {"--plan-estimates", "--plan-time-limit"})
    refuse_unless(command, r.plan || r.configured.contains(option), {option}, "--plan");
  check_optimizer_options(r.settings, command);
  check_run_options(r, command);
  refuse_unless(command, r.settings.packed, {"--max-per-pack"}, "--pack optimal");
  refuse_unless(command, r.estimate && r.machine != "host", {"--estimate-packs"},
                "--estimate on a modelled machine");
  if (!r.plan) check_sums(r.settings);
  refuse_unless(command, r.settings.stages > 1 && r.machine != "host", {"--trace"},
                "--stages of more than one on a machine of several chips");
  refuse_unless(command, !r.stage_layers.empty() || r.head_layers.is_none(), {"--head-layers"},
                "--stages with the number of layers of each");
  for (const auto& [option, items] : {std::pair("--batch", r.batches), {"--steps", r.steps}})
    if (items.size() > 1 && items.size() != r.lengths.size())
      throw UsageError(fmt::format("{} has {} items; give one, or one for each of the {} lengths", option,
                                   items.size(), r.lengths.size()));
  check_duration(command, r.configured);
  for (const char* option : {"--documents", "--vocabulary"})
    if (!r.data.empty() && command.count(option) != 0 && !r.configured.contains(option))
      throw UsageError(fmt::format("{0} is for synthetic text; leave out {0} or --data", option));
  for (const auto& [option, file] : {std::pair("--init", r.init), {"--save", r.save}})
    if (r.estimate && !file.empty())
      throw UsageError(fmt::format("--estimate trains no parameters; leave out --estimate or {}", option));
  check_extension("--checkpoint", r.checkpoint, {".safetensors"});
  check_extension("--save", r.save, {".safetensors"});
  check_extension("--trace", r.trace, {".json"});
  for (const std::string& file : {r.save, r.trace})
    if (!file.empty()) io::require_writable(file);
  check_distinct(
      {{"--checkpoint", r.checkpoint}, {"--report", r.report}, {"--trace", r.trace}, {"--save", r.save}},
      files_of_text(r));
  check_files(r);
  check_checkpoint(r);
}

PretrainingSettings settings_of(const BertRequest& r) {
  PretrainingSettings s = r.settings;
  s.config = graph::BertConfig::named(r.size);
  if (r.dropout) s.config.hidden_dropout_prob = s.config.attention_probs_dropout_prob = *r.dropout;
  if (r.attention_dropout) s.config.attention_probs_dropout_prob = *r.attention_dropout;
  const bool is_whole =
      std::ranges::all_of(r.stage_layers, &StageLayers::is_whole) && r.head_layers.is_whole();
  for (const StageLayers& layers : r.stage_layers) {
    s.stage_layers.push_back(layers.attention);
    if (!is_whole) s.stage_feed_forwards.push_back(layers.feed_forward);
  }
  s.head_layers = r.head_layers.attention;
  if (!is_whole) s.head_feed_forwards = r.head_layers.feed_forward;
  s.phases.clear();
  for (size_t i = 0; i < r.lengths.size(); ++i)
    s.phases.push_back({r.lengths[i], item(r.batches, i), r.steps.empty() ? 0 : item(r.steps, i)});
  return s;
}

TextSplit text_for(const BertRequest& r) {
  if (!r.data.empty()) return load_text(r.data, r.settings.validation, r.settings.seed);
  SyntheticText synthetic = r.synthetic;
  synthetic.seed = r.settings.seed;
  return split_text(synthetic_text(synthetic), r.settings.validation, r.settings.seed);
}

}  // namespace tessera::cli
