// Training of classifiers of images.
#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/training.h>

#include <algorithm>
#include <chrono>
#include <cmath>
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

namespace tessera {
namespace {

using namespace train;
using Clock = std::chrono::steady_clock;

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

/// Steps of a host of which one is measured operation by operation, which takes a little longer.
constexpr uint64_t kStepsPerMeasurement = 32;
constexpr uint64_t kFirstMeasurement = 4;

void add(const model::RunCost& cost, std::vector<double>& seconds) {
  seconds.resize(cost.operations.size());
  for (size_t i = 0; i < seconds.size(); ++i) seconds[i] += cost.operations[i].seconds;
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
        standardisation(training, settings.recipe == Recipe::paper ? all_of(training) : division.training),
        patterns(initial_patterns(settings)),
        trained(training_graph(settings, patterns), machine, {.seed = settings.seed, .threads = threads}),
        evaluation(settings, patterns, machine, trained),
        regrowth(settings, machine.is_host() ? machine : Machine::host(1), threads),
        batch(settings.batch, settings.layers.front()),
        logits(size_t{settings.batch} * settings.layers.back()),
        dropout_steps(settings.micro_batches),
        loop({json_of(settings).dump(),
              identity_of(images),
              {machine.name(), machine.tiles(), std::string(name_of(active_isa()))},
              steps_per_epoch(),
              steps()},
             settings.batch, settings.rate) {}

  uint64_t steps_per_epoch() const { return division.training.size() / settings.batch; }
  uint64_t steps() const { return settings.epochs * steps_per_epoch(); }
  uint64_t cycles_of(double seconds) const {
    return machine.is_host() ? 0 : static_cast<uint64_t>(std::llround(seconds * machine.clock_hz()));
  }

  void load_batch(uint64_t number);
  StepResult step(uint64_t number) override;
  Score validate() override { return evaluation.evaluate(training, standardisation, division.validation); }
  Score test() override { return evaluation.evaluate(testing, standardisation, all_of(testing)); }
  model::Session& session() override { return trained; }

  TrainingSettings settings;
  Machine machine;
  Samples training, testing;
  Division division;
  Standardisation standardisation;
  std::vector<Pattern> patterns;
  model::Session trained;
  Evaluation evaluation;
  Regrowth regrowth;
  Batch batch;
  base::BufferVector<float> logits;
  std::vector<uint32_t> dropout_steps;
  Loop loop;
  std::vector<uint32_t> order;  ///< of the images in an epoch
  std::optional<uint64_t> order_epoch;
  // Of a call of train():
  uint64_t steps_run = 0;
  std::vector<double> measured;  ///< sums over the steps that are measured
  uint64_t measurements = 0;
  uint64_t cycles = 0, step_cycles = 0;
};

void Trainer::Impl::load_batch(uint64_t number) {
  const uint64_t epoch = number / steps_per_epoch(), within = number % steps_per_epoch();
  if (order_epoch != epoch) {
    order = shuffled(division.training, settings.seed, static_cast<uint32_t>(epoch));
    order_epoch = epoch;
  }
  batch.load(training, standardisation, std::span(order).subspan(within * settings.batch, settings.batch));
}

StepResult Trainer::Impl::step(uint64_t number) {
  load_batch(number);
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
  const Clock::time_point start = Clock::now();
  const bool measures = machine.is_host() && steps_run % kStepsPerMeasurement == kFirstMeasurement;
  double modelled = 0;
  if (measures)
    add(trained.measure(arrays), measured), ++measurements;
  else
    modelled = trained.run(arrays);
  steps_run += 1;
  StepResult result{.loss = loss, .seconds = modelled};
  if (machine.is_host()) result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (settings.micro_batches == 1) result.right = count_right(logits, batch.labels);
  step_cycles = cycles_of(result.seconds);
  cycles += step_cycles;
  return result;
}

Trainer::Trainer(const TrainingSettings& settings, const ImageSplit& images, const Machine& machine,
                 uint32_t threads) {
  check(settings);
  require_match(settings, images);
  check_batch(settings, images.train.count());
  try {
    impl_ = std::make_unique<Impl>(settings, images, machine, threads);
  } catch (const UsageError&) {
    throw;
  } catch (const Error& e) {
    if (machine.is_host()) throw;
    std::string_view why = e.what();  // then a list of all that was tried
    why = why.substr(0, why.find_first_of(":\n"));
    throw Error(
        fmt::format("{} has too little memory for this network: {}; a smaller batch, sparser or smaller "
                    "layers, or a machine with more tiles would need less",
                    machine.name(), why));
  }
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
uint64_t Trainer::steps_per_epoch() const { return impl_->steps_per_epoch(); }
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
  if (!impl.trained.fits()) throw Error(step_cost().overflow);
  impl.loop.resume(checkpoint, allow_different_bits, impl.trained);
}

TrainingResult Trainer::train(const TrainingRun& run) {
  Impl& impl = *impl_;
  for (const model::RunCost& cost : {step_cost(), evaluation_cost()})
    if (!cost.overflow.empty()) throw Error(cost.overflow);
  impl.steps_run = impl.cycles = impl.step_cycles = impl.measurements = 0;
  impl.measured.clear();
  TrainingResult result = impl.loop.run(impl, run);
  result.measured = impl.measured;
  for (double& seconds : result.measured) seconds /= static_cast<double>(impl.measurements);
  result.cycles = impl.cycles;
  result.step_cycles = impl.step_cycles;
  result.evaluation_cycles = impl.cycles_of(impl.evaluation.batch_seconds());
  return result;
}

}  // namespace tessera
