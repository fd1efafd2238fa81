// Settings of training: names, limits, and their form in checkpoints.
#pragma once

#include <tessera/training.h>

#include <nlohmann/json_fwd.hpp>

namespace tessera::train {

/// Throws UsageError that names the wrong setting, its value and its limits.
void check(const TrainingSettings& settings);

/// All of them, by name.
nlohmann::ordered_json json_of(const TrainingSettings& settings);

bool is_sparse(const TrainingSettings& settings);
/// Whether hidden layers have a structure of layers.h.
bool is_structured(const TrainingSettings& settings);
/// Whether patterns change.
bool drops_and_grows(const TrainingSettings& settings);
bool is_adam(const TrainingSettings& settings);

}  // namespace tessera::train
