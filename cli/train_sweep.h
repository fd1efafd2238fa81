// Several trainings of `tessera train`, with several batch sizes or seeds.
#pragma once

#include "cli/training.h"

namespace tessera::cli {

/// Returns the exit status. `check` refuses what the last training would be refused for, before the first one
/// starts.
int train_sweep(const TrainRequest& request, const StartTraining& start, const CheckTraining& check);

}  // namespace tessera::cli
