// Settings of training: names, limits, and their form in checkpoints.
#pragma once

#include <tessera/training.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

namespace tessera::train {

/// Throws UsageError that names the wrong setting, its value and its limits.
void check(const TrainingSettings& settings);

/// Throws UsageError if so many images for training and validation do not fill a batch.
void check_batch(const TrainingSettings& settings, uint64_t images);

/// All of them, by name.
nlohmann::ordered_json json_of(const TrainingSettings& settings);

bool is_sparse(const TrainingSettings& settings);
/// Whether hidden layers have a structure of layers.h.
bool is_structured(const TrainingSettings& settings);
/// Whether the recipe says anything: that of a dense network only does if it is the paper's.
bool has_recipe(const TrainingSettings& settings);
/// Whether patterns change.
bool drops_and_grows(const TrainingSettings& settings);

}  // namespace tessera::train
