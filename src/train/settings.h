// Settings of training: names, limits, and their form in checkpoints.
#pragma once

#include <tessera/training_settings.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace tessera::train {

/// Throws UsageError that names the wrong setting, its value and its limits.
void check(const TrainingSettings& settings);

/// Checks the settings of optimizer and loop. `samples` names the samples: "images".
void check_learning(const LearningSettings& settings, std::string_view samples);

/// Throw UsageError for a batch that does not divide into that number of parts, and for a probability out of
/// range.
void check_micro_batches(uint32_t micro_batches, uint32_t batch);
void check_dropout(double probability);
/// Likewise for blocks that some machine lacks, and for the settings of patterns that change.
void check_block_size(uint32_t size);
void check_drop_grow(const DropGrowSchedule& schedule);

/// Throws UsageError if the samples do not fill a batch, or none are left for validation or testing.
void check_samples(const LearningSettings& settings, uint64_t training, uint64_t testing,
                   std::string_view samples);

/// Whether an optimizer has a momentum, or the moments of Adam.
bool has_momentum(OptimizerKind kind);
bool has_moments(OptimizerKind kind);

/// Adds the settings of the optimizer, and the clipping of gradients, to a JSON object.
void add_optimizer(nlohmann::ordered_json& json, const LearningSettings& settings);

/// Throw UsageError for a batch that does not divide into equal micro-batches of all replicas, for
/// recomputation of everything within a memory budget, and for values that are divided among replicas if
/// there is one.
void check_division(const PlacementSettings& settings, uint32_t batch, std::string_view samples);
void check_sharding(const PlacementSettings& settings);
/// Whether everything is computed again, or within which memory: true, false, "fit" (what the machine has),
/// or bytes.
nlohmann::ordered_json recomputation_json(const PlacementSettings& settings);
/// Adds recomputation, replicas and where values lie, if they differ from the defaults; and groups.
void add_placement(nlohmann::ordered_json& json, const PlacementSettings& settings);
void add_groups(nlohmann::ordered_json& json, const PlacementSettings& settings);

/// Adds how patterns change.
void add_drop_grow(nlohmann::ordered_json& json, const DropGrowSchedule& schedule);

/// All settings, by name.
nlohmann::ordered_json json_of(const TrainingSettings& settings);
/// Settings by name, without settings of placement and of the overlap of passes and sums: these do not change
/// any bit of the results. If sums of gradients are divided, the pipeline does, and stays.
nlohmann::ordered_json without_placement(const nlohmann::ordered_json& settings);

bool is_sparse(const TrainingSettings& settings);
/// Whether hidden layers have a structure of layers.h.
bool is_structured(const TrainingSettings& settings);
/// Whether the recipe has an effect; for a dense network, only the paper's has.
bool has_recipe(const TrainingSettings& settings);
/// Whether patterns change.
bool drops_and_grows(const TrainingSettings& settings);

}  // namespace tessera::train
