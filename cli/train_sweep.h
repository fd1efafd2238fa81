// Several trainings of `tessera train`, with several batch sizes or seeds.
#pragma once

#include "cli/training.h"

namespace tessera::cli {

/// Returns the exit status. Errors in the settings of any training are reported before the first one starts.
int train_sweep(const TrainRequest& request, const TrainingData& data);

}  // namespace tessera::cli
