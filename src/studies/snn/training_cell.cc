#include "studies/snn/training_cell.h"

#include <tessera/training.h>

#include <cmath>

namespace tessera::studies::snn {
namespace {

SpikingTrainingSettings settings_of(const TrainingCase& what, uint32_t epochs, uint64_t seed) {
  SpikingTrainingSettings settings = usual_settings("randman");
  settings.hidden.assign(what.layers, kHiddenNeurons);
  settings.delay = 1;
  settings.lr = 0.002;  // the usual one is for one layer
  settings.neuron.surrogate = what.surrogate;
  settings.gradient_threshold = what.gradient_threshold;
  if (std::isfinite(what.gradient_threshold)) settings.first_gradient_threshold = what.gradient_threshold;
  settings.most_listed = what.most_listed;
  settings.epochs = epochs;
  settings.seed = seed;
  return settings;
}

}  // namespace

const RecordingSplit& training_recordings() {
  static const RecordingSplit split = load_recordings("randman", "", {.randman = {.dimensions = 2}});
  return split;
}

Result train(const TrainingCase& what, uint32_t epochs, uint64_t seed, uint32_t threads,
             const RecordingSplit& recordings) {
  Trainer trainer(settings_of(what, epochs, seed), recordings, Machine::host(threads), threads);
  const TrainingResult trained = trainer.train();
  Result result;
  result.values["accuracy"] = 100 * trained.test_accuracy.value();
  result.values["seconds"] = trained.step_seconds;
  const std::vector<SpikingActivity>& activity = trained.epochs.back().activity;
  const double places = static_cast<double>(trainer.steps_per_epoch()) * trainer.settings().batch *
                        recordings.train.steps * kHiddenNeurons;
  double dropped = 0, wanted = 0;
  for (const SpikingActivity& of_layer : activity) {
    result.values["fired"] += of_layer.firing / static_cast<double>(activity.size());
    result.values["listed"] += of_layer.listed / static_cast<double>(activity.size());
    dropped += static_cast<double>(of_layer.dropped);
    wanted += static_cast<double>(of_layer.dropped) + of_layer.listed * places;
  }
  result.values["dropped"] = wanted > 0 ? dropped / wanted : 0;
  return result;
}

}  // namespace tessera::studies::snn
