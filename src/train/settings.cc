#include "train/settings.h"

#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/gradients.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/names.h"
#include "data/samples.h"
#include "graph/transforms/updates.h"

namespace tessera {
namespace {

using graph::require_setting;

constexpr base::Names<LayerKind, 11> kLayerKinds{
    "kind of layers",
    {"dense", "static", "dynamic", "butterfly", "bpbp", "pixelfly", "fastfood", "circulant", "low-rank",
     "monarch", "block-butterfly"}};
constexpr base::Names<Recipe, 2> kRecipes{"recipe", {"paper", "best"}};
constexpr base::Names<OptimizerKind, 7> kOptimizers{
    "optimizer", {"sgd", "momentum", "nesterov", "adam", "adamw", "lamb", "lars"}};
constexpr base::Names<DropGrowKind, 3> kDropGrowKinds{"schedule", {"none", "set", "rigl"}};
constexpr std::array<std::string_view, 5> kActivations = {"relu", "gelu", "tanh", "sigmoid", "none"};

void check_network(const TrainingSettings& s) {
  constexpr uint32_t kWidest = 1 << 20;
  constexpr uint32_t kMostClasses = 256;
  if (s.layers.size() < 2)
    throw UsageError(
        fmt::format("{} layer sizes; at least two are needed, inputs and classes", s.layers.size()));
  for (uint32_t size : s.layers)
    require_setting(size >= 1 && size <= kWidest, "the size of a layer", size,
                    fmt::format("from 1 to {}", kWidest));
  require_setting(s.layers.back() >= 2 && s.layers.back() <= kMostClasses,
                  "the size of the last layer, the classes,", s.layers.back(),
                  fmt::format("from 2 to {}", kMostClasses));
  base::position_of(kActivations, s.activation, "activation");
  train::check_dropout(s.dropout);
  if (s.kind == LayerKind::dense) return;
  if (s.layers.size() == 2)
    throw UsageError(
        fmt::format("{} layers are hidden ones, and there is none between {} inputs and {} classes; the "
                    "output layer is always dense",
                    name_of(s.kind), s.layers[0], s.layers[1]));
  if (train::is_sparse(s)) require_setting(graph::kFraction, "the density", s.density);
  require_setting(graph::kFromOne, "the rank", s.rank);
  train::check_block_size(s.block_size);
}

}  // namespace

std::string_view name_of(LayerKind kind) { return kLayerKinds.of(kind); }
std::string_view name_of(Recipe recipe) { return kRecipes.of(recipe); }
std::string_view name_of(OptimizerKind kind) { return kOptimizers.of(kind); }
std::string_view name_of(DropGrowKind kind) { return kDropGrowKinds.of(kind); }

LayerKind layer_kind_named(std::string_view name) { return kLayerKinds.named(name); }
Recipe recipe_named(std::string_view name) { return kRecipes.named(name); }
OptimizerKind optimizer_named(std::string_view name) { return kOptimizers.named(name); }
DropGrowKind drop_grow_named(std::string_view name) { return kDropGrowKinds.named(name); }

double DropGrowSchedule::fraction(uint64_t step, uint64_t steps) const {
  const double end = until * static_cast<double>(steps);
  const auto now = static_cast<double>(step);
  if (kind == DropGrowKind::none || step == 0 || step % every != 0 || now >= end) return 0;
  return change / 2 * (1 + std::cos(3.14159265358979323846 * now / end));
}

double LearningSettings::lr_of(uint64_t step, uint64_t steps) const {
  graph::Schedule schedule = lr_schedule;
  if (schedule.steps == 0) schedule.steps = steps;
  return lr * schedule.factor(step);
}

namespace train {

void check(const TrainingSettings& settings) {
  check_network(settings);
  if (is_sparse(settings) && settings.recipe == Recipe::paper)
    throw UsageError("the recipe paper is for dense and structured layers, not for sparse ones");
  check_learning(settings, "images");
  check_micro_batches(settings.micro_batches, settings.batch);
  if (settings.kind == LayerKind::dynamic_sparse) check_drop_grow(settings.drop_grow);
}

void check_micro_batches(uint32_t micro_batches, uint32_t batch) {
  require_setting(graph::kFromOne, "the number of micro-batches", micro_batches);
  if (batch % micro_batches != 0)
    throw UsageError(fmt::format("a batch of {} cannot be divided into {} micro-batches of equal size", batch,
                                 micro_batches));
}

void check_division(const PlacementSettings& s, uint32_t batch, std::string_view samples) {
  check_micro_batches(s.micro_batches, batch);
  if (s.recompute && s.memory_budget)
    throw UsageError(
        "everything is to be computed again, and only as much as fits a memory budget: leave out one of "
        "them");
  require_setting(graph::kFromOne, "the number of replicas", s.replicas);
  if (batch / s.micro_batches % s.replicas != 0)
    throw UsageError(fmt::format("micro-batches of {} {} cannot be divided among {} replicas equally",
                                 batch / s.micro_batches, samples, s.replicas));
}

void check_sharding(const PlacementSettings& s) {
  graph::check_sharding({.state = s.shard_from.has_value(),
                         .weights = s.shard_weights_from.has_value(),
                         .gradients = s.shard_gradients_from.has_value()},
                        s.groups, s.replicas);
}

void check_block_size(uint32_t size) {
  const bool possible = size == 1 || size == 4 || size == 8 || size == 16 || size == 32;
  require_setting(possible, "the block size", size, "1, 4, 8, 16 or 32");
}

void check_drop_grow(const DropGrowSchedule& s) {
  if (s.kind == DropGrowKind::none) return;
  require_setting(graph::kFraction, "the fraction of blocks to change", s.change);
  require_setting(graph::kFromOne, "the number of steps between changes", s.every);
  require_setting(graph::kFraction, "the fraction of steps with changes", s.until);
}

void check_dropout(double probability) {
  require_setting(graph::kBelowOne, "the dropout probability", probability);
}

void check_learning(const LearningSettings& s, std::string_view samples) {
  require_setting(graph::kPositive, "the learning rate", s.lr);
  require_setting(graph::kBelowOne, "the momentum", s.momentum);
  require_setting(s.optimizer != OptimizerKind::nesterov || s.momentum > 0,
                  "the momentum of Nesterov's method", s.momentum, "positive");
  for (double beta : {s.betas.beta1, s.betas.beta2}) require_setting(graph::kBelowOne, "a beta", beta);
  require_setting(graph::kPositive, "the trust coefficient", s.trust_coefficient);
  require_setting(graph::kFromZero, "the weight decay", s.weight_decay);
  if (s.clip_norm) require_setting(graph::kPositive, "the clipping norm", *s.clip_norm);
  require_setting(graph::kFromOne, "the batch", s.batch);
  require_setting(graph::kFromOne, "the number of epochs", s.epochs);
  require_setting(graph::kInside, fmt::format("the fraction of validation {}", samples), s.validation);
}

void check_samples(const LearningSettings& s, uint64_t training, uint64_t testing, std::string_view samples) {
  const uint64_t validation = validation_images(training, s.validation);
  if (s.batch > training - validation)
    throw UsageError(fmt::format("a batch of {} is larger than the {} {} for training; make it smaller",
                                 s.batch, training - validation, samples));
  if (validation == 0 || testing == 0)
    throw UsageError(fmt::format(
        "{} of {} {} for validation and {} for testing; at least one of each is needed: give more {}",
        validation, training, samples, testing, samples));
  graph::Schedule schedule = s.lr_schedule;
  if (schedule.steps == 0) schedule.steps = (training - validation) / s.batch * s.epochs;
  graph::check(schedule);
}

bool is_sparse(const TrainingSettings& settings) {
  return settings.kind == LayerKind::static_sparse || settings.kind == LayerKind::dynamic_sparse;
}

bool is_structured(const TrainingSettings& settings) {
  return settings.kind != LayerKind::dense && !is_sparse(settings);
}

bool has_recipe(const TrainingSettings& settings) {
  return is_structured(settings) || settings.recipe == Recipe::paper;
}

bool drops_and_grows(const TrainingSettings& settings) {
  return settings.kind == LayerKind::dynamic_sparse && settings.drop_grow.kind != DropGrowKind::none;
}

bool has_momentum(OptimizerKind kind) {
  return kind == OptimizerKind::momentum || kind == OptimizerKind::nesterov || kind == OptimizerKind::lars;
}

bool has_moments(OptimizerKind kind) {
  return kind == OptimizerKind::adam || kind == OptimizerKind::adamw || kind == OptimizerKind::lamb;
}

namespace {

/// Adds the members that differ from a constant rate.
void add_schedule(nlohmann::ordered_json& json, const graph::Schedule& s) {
  if (s.kind != graph::ScheduleKind::constant) json["lr_schedule"] = name_of(s.kind);
  if (s.steps != 0) json["lr_steps"] = s.steps;
  if (s.warmup != 0) json["warmup"] = s.warmup;
  if (s.power != 1) json["lr_power"] = s.power;
  if (s.end != 0) json["lr_end"] = s.end;
  if (s.kind == graph::ScheduleKind::step) {
    json["lr_decay_at"] = s.decay_at;
    json["lr_decay"] = s.decay;
  }
}

nlohmann::ordered_json group_json(const graph::ParameterGroup& group) {
  nlohmann::ordered_json json = {{"names", group.names}};
  const auto add = [&](const char* name, const auto& setting) {
    if (setting) json[name] = *setting;
  };
  add("lr_scale", group.lr_scale);
  add("weight_decay", group.weight_decay);
  add("trust_ratio", group.trust_ratio);
  add("shard", group.shard);
  add("shard_weights", group.shard_weights);
  add("shard_gradients", group.shard_gradients);
  add("offload", group.offload);
  add("offload_weights", group.offload_weights);
  add("offload_gradients", group.offload_gradients);
  return json;
}

}  // namespace

void add_optimizer(nlohmann::ordered_json& json, const LearningSettings& s) {
  json["optimizer"] = name_of(s.optimizer);
  if (has_momentum(s.optimizer)) json["momentum"] = s.momentum;
  if (has_moments(s.optimizer)) {
    constexpr graph::Betas kUsual;
    if (s.betas.beta1 != kUsual.beta1 || s.betas.beta2 != kUsual.beta2)
      json["betas"] = {s.betas.beta1, s.betas.beta2};
    if (!s.bias_correction) json["bias_correction"] = false;
  }
  if (s.optimizer == OptimizerKind::lars) json["trust_coefficient"] = s.trust_coefficient;
  json["weight_decay"] = s.weight_decay;
  if (!s.excluded.empty()) json["excluded"] = s.excluded;
  json["lr"] = s.lr;
  add_schedule(json, s.lr_schedule);
  json["clip_norm"] = s.clip_norm ? nlohmann::ordered_json(*s.clip_norm) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json recomputation_json(const PlacementSettings& s) {
  if (!s.memory_budget) return s.recompute;
  if (*s.memory_budget == graph::kMachineMemory) return "fit";
  return *s.memory_budget;
}

void add_placement(nlohmann::ordered_json& json, const PlacementSettings& s) {
  if (s.recompute || s.memory_budget) json["recompute"] = recomputation_json(s);
  if (s.replicas > 1) json["replicas"] = s.replicas;
  if (!s.overlap) json["overlap"] = false;
  if (s.shard_from) json["shard_from"] = *s.shard_from;
  if (s.shard_weights_from) json["shard_weights_from"] = *s.shard_weights_from;
  if (s.shard_gradients_from) json["shard_gradients_from"] = *s.shard_gradients_from;
  if (s.offload_from) json["offload_from"] = *s.offload_from;
  if (s.offload_weights_from) json["offload_weights_from"] = *s.offload_weights_from;
  if (s.offload_gradients_from) json["offload_gradients_from"] = *s.offload_gradients_from;
  if (s.prefetch) json["prefetch"] = true;
}

void add_groups(nlohmann::ordered_json& json, const PlacementSettings& s) {
  for (const graph::ParameterGroup& group : s.groups) json["groups"].push_back(group_json(group));
}

void add_drop_grow(nlohmann::ordered_json& json, const DropGrowSchedule& s) {
  json["schedule"] = name_of(s.kind);
  if (s.kind == DropGrowKind::none) return;
  json["change"] = s.change;
  json["every"] = s.every;
  json["until"] = s.until;
}

nlohmann::ordered_json json_of(const TrainingSettings& s) {
  nlohmann::ordered_json json = {{"layers", s.layers}, {"kind", name_of(s.kind)}};
  if (is_sparse(s)) json.update({{"density", s.density}, {"block", s.block_size}});
  if (s.kind == LayerKind::pixelfly || s.kind == LayerKind::block_butterfly) json["block"] = s.block_size;
  if (s.kind == LayerKind::pixelfly) json["butterfly"] = s.butterfly_size;
  if (s.kind == LayerKind::pixelfly || s.kind == LayerKind::low_rank) json["rank"] = s.rank;
  if (has_recipe(s)) json["recipe"] = name_of(s.recipe);
  if (is_structured(s) && s.form != graph::Form::fused) json["form"] = name_of(s.form);
  json.update({{"activation", s.activation}, {"dropout", s.dropout}});
  add_optimizer(json, s);
  json["batch"] = s.batch;
  json["micro_batches"] = s.micro_batches;
  json["epochs"] = s.epochs;
  json["seed"] = s.seed;
  json["grey"] = s.grey;
  json["validation"] = s.validation;
  if (s.kind == LayerKind::dynamic_sparse) add_drop_grow(json, s.drop_grow);
  return json;
}

namespace {

/// The settings without these names.
nlohmann::ordered_json without(const nlohmann::ordered_json& settings,
                               const std::vector<std::string_view>& names) {
  nlohmann::ordered_json kept;
  for (const auto& [name, value] : settings.items())
    if (std::ranges::find(names, std::string_view(name)) == names.end()) kept[name] = value;
  return kept;
}

/// Whether replicas divide the values of this setting for any parameter.
bool divides(const nlohmann::ordered_json& settings, const std::string& name) {
  bool any = settings.contains(name + "_from");
  if (settings.contains("groups"))
    for (const nlohmann::ordered_json& group : settings.at("groups")) any |= group.value(name, false);
  return any;
}

}  // namespace

nlohmann::ordered_json without_placement(const nlohmann::ordered_json& settings) {
  std::vector<std::string_view> of_all = {"overlap",
                                          "prefetch",
                                          "shard_weights_from",
                                          "offload_weights_from",
                                          "offload_from",
                                          "offload_gradients_from",
                                          "offload_activations_from"};
  std::vector<std::string_view> of_groups = {"shard_weights", "offload", "offload_weights",
                                             "offload_gradients"};
  // If nothing is divided, the members of groups only say so.
  const bool divides_gradients = divides(settings, "shard_gradients");
  if (!divides_gradients) of_groups.emplace_back("shard_gradients");
  if (!divides_gradients && !divides(settings, "shard")) of_groups.emplace_back("shard");
  // With divided gradients, pipelines may add up their parts in another order.
  if (!divides_gradients) of_all.emplace_back("pipeline");
  nlohmann::ordered_json kept = without(settings, of_all);
  if (!kept.contains("groups")) return kept;
  nlohmann::ordered_json groups = nlohmann::ordered_json::array();
  for (const nlohmann::ordered_json& group : kept.at("groups")) {
    nlohmann::ordered_json own = without(group, of_groups);
    if (own.size() > 1) groups.push_back(std::move(own));  // has more than its names
  }
  if (groups.empty()) return without(kept, {"groups"});
  kept["groups"] = std::move(groups);
  return kept;
}

}  // namespace train
}  // namespace tessera
