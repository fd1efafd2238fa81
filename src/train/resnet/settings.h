// Settings of training residual networks: limits, and their form in checkpoints.
#pragma once

#include <tessera/resnet_training.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

namespace tessera::train {

/// Throws UsageError that names the wrong setting, its value and its limits.
void check(const ResnetTrainingSettings& settings);

/// Throws UsageError if the images do not suffice.
void check_images(const ResnetTrainingSettings& settings, uint64_t training, uint64_t testing);

/// Size of images: by the depth, unless it is set.
uint32_t size_of_images(const ResnetTrainingSettings& settings);
graph::Shortcut shortcut_of(const ResnetTrainingSettings& settings);

bool is_sparse(const ResnetTrainingSettings& settings);
/// Whether patterns change.
bool drops_and_grows(const ResnetTrainingSettings& settings);
/// Number of replicas that share the statistics of norms.
uint32_t replicas_of_norm(const ResnetTrainingSettings& settings);

/// All settings, by name.
nlohmann::ordered_json json_of(const ResnetTrainingSettings& settings);

}  // namespace tessera::train
