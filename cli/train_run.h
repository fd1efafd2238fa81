// A training of the tool, from its checkpoint to what is said of it.
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
  const char* command = "train";   ///< of the tool
  const char* samples = "images";  ///< what the data are called
  uint32_t batch = 1;
  /// Called after training, before the page is written, on all ranks.
  std::function<void()> finish = {};
  Communicator* ranks = nullptr;  ///< that train together, of which the first writes files; null: none
};

/// Trains, or shows the estimate if that is all that is wanted; returns the exit status.
int run_training(const TrainingRunRequest& run, Trainer& trainer, report::TrainingReport& report);

}  // namespace tessera::cli
