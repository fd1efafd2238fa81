// What `tessera train` prints.
#pragma once

#include <tessera/training.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/train_request.h"
#include "report/training_report.h"

namespace tessera::cli {

report::TrainingReport report_of(const TrainRequest& request, const ImageSplit& images,
                                 const Machine& machine, const Trainer& trainer);

/// One training, or its estimate, as JSON.
nlohmann::ordered_json json_of(const TrainRequest& request, const Machine& machine, const Trainer& trainer,
                               const report::TrainingReport& report, uint64_t resumed_from);
/// One JSON object, of trainings that differ in their seeds alone.
std::string json(std::vector<nlohmann::ordered_json> trainings, const std::vector<double>& test_accuracies);

/// Mean of trainings with several seeds, and half the width of its 95 % confidence interval (Student's t).
struct MeanAccuracy {
  double mean = 0;
  double margin = 0;
};
MeanAccuracy mean_of(const std::vector<double>& test_accuracies);

/// The line above the epochs, and what follows them.
std::string heading(const report::TrainingReport& report, const Trainer& trainer);
std::string summary(const report::TrainingReport& report);
std::string estimate(const report::TrainingReport& report);
/// A line for one of several trainings, and the last line.
std::string summary_of_seed(const report::TrainingReport& report, uint64_t seed);
std::string summary_of_seeds(const std::vector<double>& test_accuracies);

}  // namespace tessera::cli
