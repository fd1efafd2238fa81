// A training of `tessera train`, of images or of recordings.
#pragma once

#include <tessera/training.h>

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/train_request.h"
#include "report/training_report.h"

namespace tessera::cli {

class Training {
 public:
  Training() = default;
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;
  virtual ~Training() = default;

  virtual void resume(const std::string& checkpoint, bool allow_different_bits) = 0;
  virtual uint64_t step() const = 0;
  virtual TrainingResult train(const TrainingRun& run) = 0;

  /// Without a result.
  virtual report::TrainingReport report() const = 0;
  /// Adds what the trained network makes of data.
  virtual void add_traces(report::TrainingReport& /*report*/) {}
  virtual nlohmann::ordered_json settings() const = 0;
};

/// Begins one of the trainings of a request; their data outlive it.
using StartTraining = std::function<std::unique_ptr<Training>(const TrainRequest&)>;

StartTraining of_images(const ImageSplit& images, const Machine& machine);
StartTraining of_recordings(const RecordingSplit& recordings, const Machine& machine);

/// Throws UsageError for what a training would be refused for, before another starts.
using CheckTraining = std::function<void(const TrainRequest&)>;

}  // namespace tessera::cli
