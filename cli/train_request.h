// The request of `tessera train`.
#pragma once

#include <tessera/images.h>
#include <tessera/recordings.h>
#include <tessera/spiking_training.h>
#include <tessera/training_settings.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cli/train_options.h"

namespace CLI {
class App;
}

namespace tessera::cli {

inline constexpr const char* kDefaultRecordings = "randman";

struct TrainRequest : RunOptions {
  TrainingSettings settings;
  bool layers_given = false;
  bool is_spiking = false;  ///< a network of spiking neurons, trained on recordings
  SpikingTrainingSettings spiking = usual_settings(kDefaultRecordings);
  RecordingSettings recordings;
  std::vector<uint32_t> batches = {50};  ///< batch sizes, with trainings for each
  uint32_t seeds = 1;                    ///< number of trainings per batch size, with consecutive seeds

  // The images or recordings: a data set of a folder, or synthetic ones.
  std::string data;
  std::string dataset;
  uint32_t images = 8000;
};

/// The name of the data in JSON.
inline const char* name_of_samples(const TrainRequest& request) {
  return request.is_spiking ? "recordings" : "images";
}

void add_train_options(CLI::App& command, TrainRequest& request);

/// Whether there are several trainings.
bool is_sweep(const TrainRequest& request);
/// One of several trainings, with a checkpoint of its own: run-batch50-seed0.safetensors.
TrainRequest one_of(const TrainRequest& request, uint32_t batch, uint32_t number);
/// All trainings of a request.
std::vector<TrainRequest> trainings_of(const TrainRequest& request);

/// Sets options that are not given, depending on the options that are.
void set_defaults(TrainRequest& request, const CLI::App& command);

/// Throws UsageError if options conflict or one is missing, before anything is read.
void check(const TrainRequest& request, const CLI::App& command);

/// Reads or generates the images, and sets the options that follow from them.
ImageSplit images_for(TrainRequest& request);

}  // namespace tessera::cli
