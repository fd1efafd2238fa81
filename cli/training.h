// The trainings of `tessera train`, of images or of recordings.
#pragma once

#include <tessera/training.h>

#include <string>
#include <variant>

#include "cli/train_request.h"
#include "report/training_report.h"

namespace tessera::cli {

/// Data shared by the trainings of a request; must outlive them.
struct TrainingData {
  std::variant<ImageSplit, RecordingSplit> samples;
  Machine machine;
};

/// Throws UsageError for a training that would be refused.
void check(const TrainRequest& one, const TrainingData& data);

Trainer start(const TrainRequest& one, const TrainingData& data);

/// The report of a training, without a result. `samples` are images or recordings.
report::TrainingReport report_of(const RunOptions& options, const std::string& network,
                                 const std::string& samples, const Machine& machine, const Trainer& trainer);
report::TrainingReport report_of(const TrainRequest& one, const TrainingData& data, const Trainer& trainer);

}  // namespace tessera::cli
