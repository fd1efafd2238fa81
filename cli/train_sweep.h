// Several trainings of `tessera train`, with several batch sizes or seeds.
#pragma once

#include "cli/training.h"

namespace tessera::cli {

/// Returns the exit status. What the last training would be refused for is reported before the first one
/// starts.
int train_sweep(const TrainRequest& request, const TrainingData& data);

}  // namespace tessera::cli
