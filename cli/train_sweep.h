// Several trainings of `tessera train`, with several batch sizes or seeds.
#pragma once

#include <tessera/training.h>

#include "cli/train_request.h"

namespace tessera::cli {

/// Returns the exit status.
int train_sweep(const TrainRequest& request, const Machine& machine, const ImageSplit& images);

}  // namespace tessera::cli
