// The options of `tessera train --kind spiking`.
#pragma once

#include <tessera/training.h>

#include "cli/train_request.h"

namespace tessera::cli {

/// To which all of them belong.
inline constexpr const char* kSpikingGroup = "Options of --kind spiking";

/// After --dataset, whose usual settings they change.
void add_spiking_options(CLI::App& command, TrainRequest& request);

/// What follows from the data set for options that are not given.
void set_spiking_defaults(TrainRequest& request, const CLI::App& command);

/// Throws UsageError for options of other networks.
void check_spiking(const TrainRequest& request, const CLI::App& command);

/// Reads or makes the recordings.
RecordingSplit recordings_for(const TrainRequest& request);

/// Of one training of the request.
SpikingTrainingSettings spiking_settings_of(const TrainRequest& request);

}  // namespace tessera::cli
