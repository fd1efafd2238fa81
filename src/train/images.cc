// Training of classifiers of images.
#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/training.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "data/samples.h"
#include "io/json_text.h"
#include "train/batch.h"
#include "train/network.h"
#include "train/regrow.h"
#include "train/settings.h"
#include "train/trainer_impl.h"

namespace tessera {
namespace {

using namespace train;

void require_match(const TrainingSettings& settings, const ImageSplit& images) {
  const uint32_t inputs = settings.layers.front(), outputs = settings.layers.back();
  const uint32_t features = features_of(images.train, settings.grey), grey = features_of(images.train, true);
  if (inputs != features)
    throw UsageError(fmt::format("the first layer has {} inputs; the images ({}) have {} values{}", inputs,
                                 images.name, features, inputs == grey ? ", but as grey ones they fit" : ""));
  if (outputs != images.train.classes)
    throw UsageError(fmt::format("the last layer has {} outputs; the images ({}) are of {} classes", outputs,
                                 images.name, images.train.classes));
  if (images.test.image_size() != images.train.image_size())
    throw UsageError(fmt::format("{}: test images have {} values, training images {}", images.name,
                                 images.test.image_size(), images.train.image_size()));
}

constexpr uint32_t kHostRows = 512;

/// Number of images evaluated together: many on a host, where this is faster; elsewhere as in a training
/// step, whose memory suffices.
uint32_t rows_for(const TrainingSettings& settings, const Machine& machine) {
  const uint32_t rows = settings.batch / settings.micro_batches;
  return machine.is_host() ? std::max(rows, kHostRows) : rows;
}

std::vector<uint32_t> all_of(const Samples& samples) {
  std::vector<uint32_t> all(samples.count());
  std::iota(all.begin(), all.end(), 0U);
  return all;
}

Trainable trainable(const TrainingSettings& settings, const ImageSplit& images, const Machine& machine) {
  const std::vector<Pattern> patterns = initial_patterns(settings);
  const uint32_t rows = rows_for(settings, machine);
  return {.settings = settings,
          .settings_json = io::json_text(json_of(settings)),
          .data = train::identity_of(images),
          .training_samples = images.train.count(),
          .test_samples = images.test.count(),
          .classes = settings.layers.back(),
          .training = training_graph(settings, patterns),
          .evaluation = evaluation_graph(settings, patterns, rows),
          .evaluation_rows = rows,
          .machine = machine.name()};
}

class ImageTrainer final : public TrainerImpl {
 public:
  ImageTrainer(const TrainingSettings& chosen, const ImageSplit& images, const Machine& place,
               uint32_t most_threads, bool only_estimates)
      : TrainerImpl(trainable(chosen, images, place), place, most_threads, only_estimates),
        settings_(chosen),
        training_(train::samples_of(images.train, chosen.grey)),
        testing_(train::samples_of(images.test, chosen.grey)),
        standardisation_(training_, chosen.recipe == Recipe::paper ? all_of(training_) : division.training),
        regrowth_(settings_, machine.is_host() ? machine : Machine::host(1), threads),
        batch_(chosen.batch, chosen.layers.front()),
        evaluated_(what.evaluation_rows, chosen.layers.front()),
        dropout_steps_(chosen.micro_batches) {}

 private:
  StepResult step(uint64_t number) override;
  std::span<const uint32_t> evaluate_batch(bool of_test, std::span<const uint32_t> which) override {
    evaluated_.load(of_test ? testing_ : training_, standardisation_, which);
    evaluation().run(
        std::vector<graph::Tensor>{{kImages, evaluated_.images.data()}, {kLogits, logits.data()}});
    evaluation_seconds = evaluation().last_seconds();
    return evaluated_.labels;
  }

  TrainingSettings settings_;
  Samples training_, testing_;
  Standardisation standardisation_;
  Regrowth regrowth_;
  Batch batch_, evaluated_;
  std::vector<uint32_t> dropout_steps_;
};

StepResult ImageTrainer::step(uint64_t number) {
  batch_.load(training_, standardisation_, samples_of(number));
  if (drops_and_grows(settings_))
    if (const double fraction = settings_.drop_grow.fraction(number, steps()); fraction > 0) {
      begin_changes(number);
      regrowth_.apply(trained(), batch_, number, fraction);
    }
  for (uint32_t i = 0; i < settings_.micro_batches; ++i)
    dropout_steps_[i] = static_cast<uint32_t>(number * settings_.micro_batches + i);
  return run_step(number, batch_.labels,
                  {{kImages, batch_.images.data()}, {kDropoutStep, dropout_steps_.data()}});
}

std::unique_ptr<TrainerImpl> image_trainer(const TrainingSettings& settings, const ImageSplit& images,
                                           const Machine& machine, uint32_t threads, bool only_estimates) {
  check(settings);
  require_match(settings, images);
  check_samples(settings, images.train.count(), images.test.count(), "images");
  return make_for(machine, [&] {
    return std::make_unique<ImageTrainer>(settings, images, machine, threads, only_estimates);
  });
}

}  // namespace

Trainer::Trainer(const TrainingSettings& settings, const ImageSplit& images, const Machine& machine,
                 uint32_t threads)
    : impl_(image_trainer(settings, images, machine, threads, false)) {}

Trainer Trainer::for_estimates(const TrainingSettings& settings, const ImageSplit& images,
                               const Machine& machine, uint32_t threads) {
  return Trainer(image_trainer(settings, images, machine, threads, true));
}

}  // namespace tessera
