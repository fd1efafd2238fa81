#include "train/bert/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>
#include <tessera/gradients.h>
#include <tessera/pipeline.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "graph/transforms/loss_scale.h"
#include "graph/transforms/updates.h"
#include "train/settings.h"

namespace tessera {

PretrainingSettings::PretrainingSettings()
    : LearningSettings{.optimizer = OptimizerKind::lamb,
                       .weight_decay = 0.01,
                       .excluded = {"*.bias", "*.LayerNorm.weight"},
                       .lr = 0.01,
                       .epochs = 10,
                       .validation = 0.05} {}

namespace train {
namespace {

using graph::require_setting;

void check_phase(const PretrainingSettings& s, const PretrainingPhase& phase) {
  require_setting(phase.length <= s.config.max_position_embeddings, "the length", phase.length,
                  fmt::format("at most the positions of the model, {}", s.config.max_position_embeddings));
  require_setting(graph::kFromOne, "the batch", phase.packs);
  check_division(s, phase.packs, "packs");
}

/// The number of a fixed scale.
nlohmann::ordered_json loss_scale_json(const graph::LossScale& scale) {
  if (scale.grow_after == 0) return scale.initial;
  return {{"initial", scale.initial}, {"grow_after", scale.grow_after}};
}

/// Checks the numbers of layers or parts on each stage, and on the stage of the prediction of masked tokens
/// (`with_head`).
void check_placed(const PretrainingSettings& s, const std::vector<uint32_t>& counts, uint32_t with_head,
                  std::string_view what) {
  const uint64_t placed = std::accumulate(counts.begin(), counts.end(), uint64_t{with_head});
  bool has_all = true;
  for (size_t i = 1; i < counts.size(); ++i)
    has_all &= s.stage_layers[i] > 0 || (!s.stage_feed_forwards.empty() && s.stage_feed_forwards[i] > 0);
  if (placed == s.config.num_hidden_layers && has_all) return;
  const std::string beside =
      with_head == 0 ? "" : fmt::format(" and {} with the prediction of masked tokens", with_head);
  throw UsageError(
      fmt::format("stages of {} {}{} are {} {}, and there are {}; all but the first stage have at least one",
                  fmt::join(counts, ", "), what, beside, placed, what, s.config.num_hidden_layers));
}

void check_stage_layers(const PretrainingSettings& s) {
  const bool is_whole = s.stage_feed_forwards.empty();
  if (s.stage_layers.empty() && (!is_whole || s.head_layers + s.head_feed_forwards > 0))
    throw UsageError(
        "layers are in parts, or with the prediction of masked tokens: give the number of layers of each "
        "stage too");
  if (s.stage_layers.empty()) return;
  if (s.stage_layers.size() != s.stages || (!is_whole && s.stage_feed_forwards.size() != s.stages) ||
      (is_whole && s.head_feed_forwards > 0))
    throw UsageError(
        fmt::format("{} stages, {} numbers of layers and {} of feed-forward parts, {} with the prediction of "
                    "masked tokens; give one for each stage",
                    s.stages, s.stage_layers.size(), s.stage_feed_forwards.size(), s.head_feed_forwards));
  check_placed(s, s.stage_layers, s.head_layers, is_whole ? "layers" : "attention parts");
  if (!is_whole) check_placed(s, s.stage_feed_forwards, s.head_feed_forwards, "feed-forward parts");
}

void check_stages(const PretrainingSettings& s) {
  // Stages with numbers of layers may be more: the first one may have none, and others parts of layers.
  if (s.stage_layers.empty())
    require_setting(s.stages >= 1 && s.stages <= s.config.num_hidden_layers, "the number of stages", s.stages,
                    fmt::format("1 to the number of layers, {}", s.config.num_hidden_layers));
  check_stage_layers(s);
  graph::check_offload({.kind = s.pipeline, .offload_from = s.offload_activations_from});
  if (s.pipeline == graph::PipelineKind::sequential) return;
  if (s.stages == 1)
    throw UsageError(
        fmt::format("a pipeline is {}, but there is only one stage: name several stages, or leave it out",
                    name_of(s.pipeline)));
  const uint32_t stages = s.stages + 1;
  if (s.pipeline == graph::PipelineKind::grouped && s.micro_batches % (2 * stages) != 0)
    throw UsageError(fmt::format(
        "a grouped pipeline of {} stages and one for the prediction of masked tokens takes a "
        "multiple of {} micro-batches, not {}: change their number, or choose interleaved or 1f1b",
        s.stages, 2 * stages, s.micro_batches));
  graph::pipeline_schedule({s.pipeline, {}}, stages, s.micro_batches);
}

void check_partials(const PretrainingSettings& s, const graph::Numbers& numbers) {
  if (!s.partials) return;
  if (numbers.products == Type::f32)
    throw UsageError(
        fmt::format("only products of 16 bits have partial sums of another type, and the numbers {} have "
                    "none: leave the type out, or ask for bf16, mlperf-v1, mlperf-v2 or mlperf-slides",
                    s.numbers));
  if (*s.partials != Type::f32 && *s.partials != numbers.products)
    throw UsageError(fmt::format("products are {}, and their partial sums {}: use f32 or {}",
                                 name_of(numbers.products), name_of(*s.partials), name_of(numbers.products)));
}

void check_sums(const PretrainingSettings& s, const graph::Numbers& numbers) {
  if (!s.sums) return;
  if (numbers.parameters == Type::f32)
    throw UsageError(
        fmt::format("only gradients of 16-bit parameters have sums of another type, and the numbers {} have "
                    "none: leave the type out, or ask for mlperf-v1, mlperf-v2 or mlperf-slides",
                    s.numbers));
  if (*s.sums != Type::f32 && *s.sums != numbers.parameters)
    throw UsageError(fmt::format("gradients are {}, and their sums {}: use f32 or {}",
                                 name_of(numbers.parameters), name_of(*s.sums), name_of(numbers.parameters)));
}

void check_roundings(const PretrainingSettings& s, const graph::Numbers& numbers) {
  const auto is_wide = [](Type type) { return type == Type::f32; };
  if (s.rounding && is_wide(numbers.parameters) && is_wide(numbers.state))
    throw UsageError(
        fmt::format("only 16-bit parameters are rounded, and the numbers {} have none: leave it "
                    "out, or ask for mlperf-v1 or mlperf-v2",
                    s.numbers));
  const auto require_narrow = [&](const std::optional<graph::Rounding>& rounding, Type type,
                                  std::string_view what) {
    if (rounding && is_wide(type))
      throw UsageError(fmt::format(
          "{} are FP32 with the numbers {}, and not rounded: leave out their rounding", what, s.numbers));
  };
  require_narrow(s.roundings.parameters, numbers.parameters, "parameters");
  require_narrow(s.roundings.state, numbers.state, "moments");
  require_narrow(s.roundings.partials, s.partials.value_or(numbers.partials.value_or(numbers.products)),
                 "partial sums of products");
}

std::string_view rounding_text(graph::Rounding rounding) {
  return rounding == graph::Rounding::stochastic ? "stochastic" : "nearest";
}

/// One rounding for all stores, or one for each kind.
nlohmann::ordered_json rounding_json(const graph::Numbers& numbers) {
  const auto of = [&](const std::optional<graph::Rounding>& own) { return own.value_or(numbers.rounding); };
  const graph::Rounding parameters = of(numbers.roundings.parameters), state = of(numbers.roundings.state),
                        partials = of(numbers.roundings.partials);
  if (parameters == state && state == partials) return rounding_text(parameters);
  return {{"parameters", rounding_text(parameters)},
          {"state", rounding_text(state)},
          {"partials", rounding_text(partials)}};
}

}  // namespace

void check(const PretrainingSettings& s) {
  check_learning(s, "documents");
  if (s.phases.empty()) throw UsageError("a training of no phases; it has at least one");
  for (const PretrainingPhase& phase : s.phases) check_phase(s, phase);
  require_setting(s.head_slices >= 1, "the number of slices of the head", s.head_slices, "at least 1");
  check_stages(s);
  check_sharding(s);
  require_setting(s.config.type_vocab_size >= 2, "the number of token types", s.config.type_vocab_size,
                  "at least 2, one for each sentence of a pair");
  for (const double p : {s.config.hidden_dropout_prob, s.config.attention_probs_dropout_prob})
    check_dropout(p);
  const graph::Numbers numbers = graph::numbers_named(s.numbers);
  check_roundings(s, numbers);
  check_partials(s, numbers);
  check_sums(s, numbers);
  if (s.loss_scale) graph::check_loss_scale(*s.loss_scale);
}

PretrainingSettings with_vocabulary(PretrainingSettings settings, const TextSplit& text) {
  check(settings);
  require_valid(text);
  settings.config.vocab_size = text.train->vocabulary;
  return settings;
}

void check_packs(const PretrainingPhase& phase, uint64_t packs) {
  if (packs < phase.packs)
    throw UsageError(
        fmt::format("a batch of {} packs is larger than the {} packs of {} tokens for training; make "
                    "it smaller",
                    phase.packs, packs, phase.length));
}

graph::Numbers numbers_of(const PretrainingSettings& s) {
  graph::Numbers numbers = graph::numbers_named(s.numbers);
  if (s.rounding) numbers.rounding = *s.rounding;
  numbers.roundings = s.roundings;
  if (s.partials) numbers.partials = s.partials;
  if (s.sums) numbers.sums = *s.sums;
  if (s.loss_scale) numbers.loss_scale = s.loss_scale;
  return numbers;
}

nlohmann::ordered_json json_of(const PretrainingSettings& s) {
  const graph::BertConfig& c = s.config;
  nlohmann::ordered_json json = {{"vocab_size", c.vocab_size},
                                 {"hidden_size", c.hidden_size},
                                 {"num_hidden_layers", c.num_hidden_layers},
                                 {"num_attention_heads", c.num_attention_heads},
                                 {"intermediate_size", c.intermediate_size},
                                 {"max_position_embeddings", c.max_position_embeddings},
                                 {"type_vocab_size", c.type_vocab_size},
                                 {"hidden_dropout_prob", c.hidden_dropout_prob},
                                 {"attention_probs_dropout_prob", c.attention_probs_dropout_prob},
                                 {"layer_norm_eps", c.layer_norm_eps},
                                 {"initializer_range", c.initializer_range},
                                 {"pack", s.packed ? "optimal" : "none"}};
  if (s.max_per_pack != 0) json["max_per_pack"] = s.max_per_pack;
  for (const PretrainingPhase& phase : s.phases)
    json["phases"].push_back({{"length", phase.length}, {"batch", phase.packs}, {"steps", phase.steps}});
  json["average"] = name_of(s.average);
  json["numbers"] = s.numbers;
  json["rounding"] = rounding_json(numbers_of(s));
  if (s.partials) json["partials"] = name_of(*s.partials);
  if (s.sums) json["sums"] = name_of(*s.sums);
  if (s.loss_scale) json["loss_scale"] = loss_scale_json(*s.loss_scale);
  add_optimizer(json, s);
  json["micro_batches"] = s.micro_batches;
  if (s.head_slices > 1) json["head_slices"] = s.head_slices;
  if (s.stages > 1) json["stages"] = s.stages;
  if (!s.stage_layers.empty()) json["stage_layers"] = s.stage_layers;
  if (!s.stage_feed_forwards.empty()) json["stage_feed_forwards"] = s.stage_feed_forwards;
  if (s.head_layers > 0) json["head_layers"] = s.head_layers;
  if (s.head_feed_forwards > 0) json["head_feed_forwards"] = s.head_feed_forwards;
  if (s.stages > 1) json["pipeline"] = name_of(s.pipeline);
  add_placement(json, s);
  if (s.offload_activations_from) json["offload_activations_from"] = *s.offload_activations_from;
  add_groups(json, s);
  json["evaluate_every"] = s.evaluate_every;
  json["seed"] = s.seed;
  return json;
}

nlohmann::ordered_json json_of(const PretrainingEvaluation& e) {
  return {{"step", e.step},
          {"sequences", e.sequences},
          {"loss", e.loss},
          {"held_out_loss", e.held_out_loss},
          {"masked_lm_loss", e.masked_lm_loss},
          {"next_sentence_loss", e.next_sentence_loss}};
}

}  // namespace train
}  // namespace tessera
