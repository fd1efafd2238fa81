// One training by the tool, from its checkpoint to its report.
#pragma once

#include <tessera/communicator.h>
#include <tessera/training.h>

#include <cstdint>
#include <functional>

#include "cli/train_options.h"
#include "report/training_report.h"

namespace tessera::cli {

struct TrainingRunRequest {
  const RunOptions& options;
  const char* command = "train";   ///< command of the tool
  const char* samples = "images";  ///< name of the data
  uint32_t batch = 1;
  /// Called after training, before the page is written, on all ranks.
  std::function<void()> finish = {};
  Communicator* ranks = nullptr;  ///< that train together, of which the first writes files; null: none
};

/// Trains, or only shows the estimate if the options ask for that; returns the exit status.
int run_training(const TrainingRunRequest& run, Trainer& trainer, report::TrainingReport& report);

}  // namespace tessera::cli
