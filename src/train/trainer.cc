// Training of classifiers of images.
#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/training.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/checksum.h"
#include "base/isa.h"
#include "train/batch.h"
#include "train/evaluation.h"
#include "train/loop.h"
#include "train/network.h"
#include "train/regrow.h"
#include "train/settings.h"
#include "train/step_runs.h"

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
    throw UsageError(fmt::format("{}: images for testing have {} values, those for training {}", images.name,
                                 images.test.image_size(), images.train.image_size()));
}

std::string identity_of(const ImageSplit& images) {
  uint64_t sum = 0;
  for (const ImageSet* set : {&images.train, &images.test})
    for (const std::vector<uint8_t>* bytes : {&set->pixels, &set->labels})
      sum = sum * 31 + base::checksum(std::as_bytes(std::span(*bytes)));
  return fmt::format("{}, {} for training and {} for testing, checksum {:016x}", images.name,
                     images.train.count(), images.test.count(), sum);
}

std::vector<uint32_t> all_of(const Samples& samples) {
  std::vector<uint32_t> all(samples.count());
  std::iota(all.begin(), all.end(), 0U);
  return all;
}

}  // namespace

struct Trainer::Impl final : Trained {
  Impl(const TrainingSettings& chosen, const ImageSplit& images, Machine place, uint32_t threads)
      : settings(chosen),
        machine(std::move(place)),
        training(samples_of(images.train, settings.grey)),
        testing(samples_of(images.test, settings.grey)),
        division(divide(training.count(), settings.validation, settings.seed)),
        order(division, settings.batch, settings.seed),
        standardisation(training, settings.recipe == Recipe::paper ? all_of(training) : division.training),
        patterns(initial_patterns(settings)),
        trained(training_graph(settings, patterns), machine, {.seed = settings.seed, .threads = threads}),
        runs(trained, machine),
        evaluation(settings, patterns, machine, trained),
        regrowth(settings, machine.is_host() ? machine : Machine::host(1), threads),
        batch(settings.batch, settings.layers.front()),
        logits(size_t{settings.batch} * settings.layers.back()),
        dropout_steps(settings.micro_batches),
        loop({json_of(settings).dump(),
              identity_of(images),
              {machine.name(), machine.tiles(), std::string(name_of(active_isa()))},
              order.steps_per_epoch(),
              steps()},
             settings.batch, settings.rate) {}

  uint64_t steps() const { return settings.epochs * order.steps_per_epoch(); }

  StepResult step(uint64_t number) override;
  Score validate() override { return evaluation.evaluate(training, standardisation, division.validation); }
  Score test() override { return evaluation.evaluate(testing, standardisation, all_of(testing)); }
  model::Session& session() override { return trained; }

  TrainingSettings settings;
  Machine machine;
  Samples training, testing;
  Division division;
  BatchOrder order;
  Standardisation standardisation;
  std::vector<Pattern> patterns;
  model::Session trained;
  StepRuns runs;
  Evaluation evaluation;
  Regrowth regrowth;
  Batch batch;
  base::BufferVector<float> logits;
  std::vector<uint32_t> dropout_steps;
  Loop loop;
};

StepResult Trainer::Impl::step(uint64_t number) {
  batch.load(training, standardisation, order.of_step(number));
  if (drops_and_grows(settings))
    if (const double fraction = settings.drop_grow.fraction(number, steps()); fraction > 0)
      regrowth.apply(trained, batch, number, fraction);
  for (uint32_t i = 0; i < settings.micro_batches; ++i)
    dropout_steps[i] = static_cast<uint32_t>(number * settings.micro_batches + i);
  auto from_one = static_cast<uint32_t>(number + 1);
  auto rate = static_cast<float>(settings.rate);
  float loss = 0;
  const std::vector<model::Tensor> arrays = taken_by(trained.graph(), {{kImages, batch.images.data()},
                                                                       {kLabels, batch.labels.data()},
                                                                       {kDropoutStep, dropout_steps.data()},
                                                                       {"rate", &rate},
                                                                       {"step", &from_one},
                                                                       {kLoss, &loss},
                                                                       {kLogits, logits.data()}});
  const double seconds = runs.run(arrays);
  StepResult result{.loss = loss, .seconds = seconds};
  if (settings.micro_batches == 1) result.right = count_right(logits, batch.labels);
  return result;
}

Trainer::Trainer(const TrainingSettings& settings, const ImageSplit& images, const Machine& machine,
                 uint32_t threads) {
  check(settings);
  require_match(settings, images);
  check_batch(settings, images.train.count());
  make_for(machine, [&] { impl_ = std::make_unique<Impl>(settings, images, machine, threads); });
  if (validation_images() == 0 || impl_->testing.count() == 0)
    throw UsageError(
        fmt::format("{} images for validation and {} for testing; at least one of each is needed",
                    validation_images(), impl_->testing.count()));
}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

const TrainingSettings& Trainer::settings() const { return impl_->settings; }
uint64_t Trainer::training_images() const { return impl_->division.training.size(); }
uint64_t Trainer::validation_images() const { return impl_->division.validation.size(); }
uint64_t Trainer::steps_per_epoch() const { return impl_->order.steps_per_epoch(); }
uint64_t Trainer::step() const { return impl_->loop.step(); }
model::RunCost Trainer::step_cost() const { return impl_->trained.cost(); }
model::RunCost Trainer::evaluation_cost() const { return impl_->evaluation.session().cost(); }
uint32_t Trainer::evaluation_batch() const { return impl_->evaluation.rows(); }
const model::Graph& Trainer::graph() const { return impl_->trained.graph(); }

uint64_t Trainer::parameters() const {
  uint64_t count = 0;
  for (const model::ValueInfo& info : impl_->trained.graph().values())
    if (info.kind == model::Kind::parameter) count += info.type.elements();
  return count;
}

void Trainer::resume(const std::string& checkpoint, bool allow_different_bits) {
  Impl& impl = *impl_;
  require_fit({step_cost()});
  impl.loop.resume(checkpoint, allow_different_bits, impl.trained);
}

TrainingResult Trainer::train(const TrainingRun& run) {
  Impl& impl = *impl_;
  require_fit({step_cost(), evaluation_cost()});
  impl.runs.restart();
  TrainingResult result = impl.loop.run(impl, run);
  impl.runs.enter(impl.evaluation.batch_seconds(), result);
  return result;
}

}  // namespace tessera
