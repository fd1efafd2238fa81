#include "train/resnet/settings.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <nlohmann/json.hpp>

#include "graph/transforms/updates.h"
#include "train/settings.h"

namespace tessera {

ResnetTrainingSettings::ResnetTrainingSettings()
    : LearningSettings{.weight_decay = 1e-4,
                       .lr = 0.1,
                       .lr_schedule = {.kind = graph::ScheduleKind::cosine},
                       .batch = 128,
                       .epochs = 30,
                       .validation = 0.1} {}

namespace train {

void check(const ResnetTrainingSettings& s) {
  constexpr uint32_t kMostPadding = 1024;
  graph::ResnetConfig::of_depth(s.depth);
  graph::numbers_named(s.numbers);
  check_learning(s, "images");
  graph::require_setting(graph::kBelowOne, "the label smoothing", s.label_smoothing);
  graph::require_setting(graph::kFraction, "the density", s.density);
  check_block_size(s.block_size);
  if (is_sparse(s)) check_drop_grow(s.drop_grow);
  graph::require_setting(s.padding <= kMostPadding, "the padding", s.padding,
                         fmt::format("at most {}", kMostPadding));
  constexpr uint32_t kMostSize = 4096;
  graph::require_setting(s.size <= kMostSize, "the size of images", s.size,
                         fmt::format("at most {}", kMostSize));
  check_division(s, s.batch, "images");
  check_sharding(s);
  if (s.norm_replicas != 0 && s.replicas % s.norm_replicas != 0)
    throw UsageError(
        fmt::format("norms have the statistics of {} replicas together, which is no divisor of the number of "
                    "replicas, {}; give a divisor, or 0 for all",
                    s.norm_replicas, s.replicas));
  if ((s.recompute || s.memory_budget) && drops_and_grows(s))
    throw UsageError(
        "blocks whose patterns change cannot be computed again: leave out one, or let patterns stay");
}

void check_images(const ResnetTrainingSettings& s, uint64_t training, uint64_t testing) {
  LearningSettings learning = s;
  if (learning.lr_schedule.steps == 0) learning.lr_schedule.steps = s.steps;
  check_samples(learning, training, testing, "images");
}

uint32_t size_of_images(const ResnetTrainingSettings& s) {
  if (s.size != 0) return s.size;
  return graph::ResnetConfig::of_depth(s.depth).is_for_small_images ? 32 : 224;
}

graph::Shortcut shortcut_of(const ResnetTrainingSettings& s) {
  return s.shortcut.value_or(graph::ResnetConfig::of_depth(s.depth).shortcut);
}

bool is_sparse(const ResnetTrainingSettings& s) { return s.density < 1; }

bool drops_and_grows(const ResnetTrainingSettings& s) {
  return is_sparse(s) && s.drop_grow.kind != DropGrowKind::none;
}

uint32_t replicas_of_norm(const ResnetTrainingSettings& s) {
  return s.norm_replicas == 0 ? s.replicas : s.norm_replicas;
}

nlohmann::ordered_json json_of(const ResnetTrainingSettings& s) {
  nlohmann::ordered_json json = {
      {"depth", s.depth}, {"shortcut", name_of(shortcut_of(s))}, {"numbers", s.numbers}};
  json["label_smoothing"] = s.label_smoothing;
  json["density"] = s.density;
  if (is_sparse(s)) {
    json["block"] = s.block_size;
    add_drop_grow(json, s.drop_grow);
  }
  json["augment"] = s.augment;
  if (s.augment) json["padding"] = s.padding;
  if (s.size != 0) json["size"] = s.size;
  add_optimizer(json, s);
  json["batch"] = s.batch;
  json["micro_batches"] = s.micro_batches;
  add_placement(json, s);
  add_groups(json, s);
  if (s.norm_replicas != 1) json["norm_replicas"] = s.norm_replicas;
  if (s.steps == 0)
    json["epochs"] = s.epochs;
  else
    json["steps"] = s.steps;
  json["seed"] = s.seed;
  json["validation"] = s.validation;
  return json;
}

}  // namespace train
}  // namespace tessera
