// Settings of spiking networks: limits, and their form in checkpoints.
#pragma once

#include <tessera/recordings.h>
#include <tessera/spiking_training.h>

#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace tessera {

/// "none", "zero", "subtract", "late-zero", "late-subtract"; "detached", "gated", "attached".
std::string_view name_of(Reset reset);
std::string_view name_of(ResetGradient gradient);

}  // namespace tessera

namespace tessera::train {

/// Throws UsageError that names the wrong setting, its value and its limits.
void check(const SpikingTrainingSettings& settings);
/// Throws UsageError for wrong settings, and for settings that do not fit the recordings.
void check(const SpikingTrainingSettings& settings, const RecordingSplit& recordings);

/// All settings, by name.
nlohmann::ordered_json json_of(const SpikingTrainingSettings& settings);

/// Whether the last layer spikes.
bool output_spikes(const SpikingTrainingSettings& settings);

/// The layers between inputs and classes.
std::vector<SpikingLayer> layers_of(const SpikingTrainingSettings& settings, uint32_t inputs,
                                    uint32_t classes);

}  // namespace tessera::train
