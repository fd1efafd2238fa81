// The options of `tessera train --kind spiking`.
#pragma once

#include <tessera/recordings.h>
#include <tessera/spiking_training.h>

#include "cli/train_request.h"

namespace tessera::cli {

/// The group of all these options.
inline constexpr const char* kSpikingGroup = "Options of --kind spiking";

/// Adds the options. Must be called after --dataset is added, whose usual settings they change.
void add_spiking_options(CLI::App& command, TrainRequest& request);

/// Sets options that are not given, by the data set.
void set_spiking_defaults(TrainRequest& request, const CLI::App& command);

/// Throws UsageError for options that only apply to other networks.
void check_spiking(const TrainRequest& request, const CLI::App& command);

/// Reads or makes the recordings.
RecordingSplit recordings_for(const TrainRequest& request);

/// The settings of one training of the request.
SpikingTrainingSettings spiking_settings_of(const TrainRequest& request);

}  // namespace tessera::cli
