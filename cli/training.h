// The trainings of `tessera train`, of images or of recordings.
#pragma once

#include <tessera/training.h>

#include <variant>

#include "cli/train_request.h"
#include "report/training_report.h"

namespace tessera::cli {

/// What the trainings of a request have in common; outlives them.
struct TrainingData {
  std::variant<ImageSplit, RecordingSplit> samples;
  Machine machine;
};

/// Throws UsageError for what the training would be refused for.
void check(const TrainRequest& one, const TrainingData& data);

Trainer start(const TrainRequest& one, const TrainingData& data);

/// Without a result.
report::TrainingReport report_of(const TrainRequest& one, const TrainingData& data, const Trainer& trainer);

}  // namespace tessera::cli
