// What `tessera train` prints.
#pragma once

#include <tessera/training.h>

#include <string>

#include "cli/train_request.h"
#include "report/training_report.h"

namespace tessera::cli {

report::TrainingReport report_of(const TrainRequest& request, const ImageSplit& images,
                                 const Machine& machine, const Trainer& trainer);

/// One JSON object.
std::string json(const TrainRequest& request, const Machine& machine, const Trainer& trainer,
                 const report::TrainingReport& report, uint64_t resumed_from);

/// The line above the epochs, and what follows them.
std::string heading(const report::TrainingReport& report, const Trainer& trainer);
std::string summary(const report::TrainingReport& report);
std::string estimate(const report::TrainingReport& report);

}  // namespace tessera::cli
