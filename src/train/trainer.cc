// The training loop.
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
#include "train/checkpoint.h"
#include "train/evaluation.h"
#include "train/network.h"
#include "train/regrow.h"
#include "train/settings.h"

namespace tessera {
namespace {

using namespace train;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

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

struct Trainer::Impl {
  Impl(const TrainingSettings& chosen, const ImageSplit& images, Machine place, uint32_t threads)
      : settings(chosen),
        machine(std::move(place)),
        training(samples_of(images.train, settings.grey)),
        test(samples_of(images.test, settings.grey)),
        division(divide(training.count(), settings.validation, settings.seed)),
        standardisation(training, settings.recipe == Recipe::paper ? all_of(training) : division.training),
        patterns(initial_patterns(settings)),
        session(training_graph(settings, patterns), machine, {.seed = settings.seed, .threads = threads}),
        evaluation(settings, patterns, machine, session),
        regrowth(settings, machine.is_host() ? machine : Machine::host(1), threads),
        batch(settings.batch, settings.layers.front()),
        logits(size_t{settings.batch} * settings.layers.back()),
        dropout_steps(settings.micro_batches),
        identity{json_of(settings).dump(),
                 identity_of(images),
                 {machine.name(), machine.tiles(), std::string(name_of(active_isa()))},
                 steps_per_epoch(),
                 steps()} {}

  uint64_t steps_per_epoch() const { return division.training.size() / settings.batch; }
  uint64_t steps() const { return settings.epochs * steps_per_epoch(); }
  uint64_t cycles_of(double seconds) const {
    return machine.is_host() ? 0 : static_cast<uint64_t>(std::llround(seconds * machine.clock_hz()));
  }

  void load_batch();
  void step(TrainingResult& result);
  void require_finite(double loss, const TrainingRun& run) const;
  void finish_epoch(const TrainingRun& run, double seconds);
  TrainingProgress progress() const;
  void save(const TrainingRun& run) const {
    if (!run.checkpoint.empty()) save_checkpoint(run.checkpoint, identity, position, session);
  }

  TrainingSettings settings;
  Machine machine;
  Samples training, test;
  Division division;
  Standardisation standardisation;
  std::vector<Pattern> patterns;
  model::Session session;
  Evaluation evaluation;
  Regrowth regrowth;
  Batch batch;
  base::BufferVector<float> logits;
  std::vector<uint32_t> dropout_steps;
  Identity identity;
  Position position;
  std::vector<uint32_t> order;  ///< of the images in an epoch
  std::optional<uint64_t> order_epoch;
  double last_loss = 0;
};

void Trainer::Impl::load_batch() {
  const uint64_t epoch = position.step / steps_per_epoch(), within = position.step % steps_per_epoch();
  if (order_epoch != epoch) {
    order = shuffled(division.training, settings.seed, static_cast<uint32_t>(epoch));
    order_epoch = epoch;
  }
  batch.load(training, standardisation, std::span(order).subspan(within * settings.batch, settings.batch));
}

void Trainer::Impl::step(TrainingResult& result) {
  load_batch();
  if (drops_and_grows(settings))
    if (const double fraction = settings.drop_grow.fraction(position.step, steps()); fraction > 0)
      regrowth.apply(session, batch, position.step, fraction);
  for (uint32_t i = 0; i < settings.micro_batches; ++i)
    dropout_steps[i] = static_cast<uint32_t>(position.step * settings.micro_batches + i);
  auto number = static_cast<uint32_t>(position.step + 1);
  auto rate = static_cast<float>(settings.rate);
  float loss = 0;
  const std::vector<model::Tensor> arrays = {{kImages, batch.images.data()},
                                             {kLabels, batch.labels.data()},
                                             {kDropoutStep, dropout_steps.data()},
                                             {"rate", &rate},
                                             {"step", &number},
                                             {kLoss, &loss},
                                             {kLogits, logits.data()}};
  const Clock::time_point start = Clock::now();
  const bool measures = machine.is_host() && result.steps_run % kStepsPerMeasurement == kFirstMeasurement;
  double modelled = 0;
  if (measures)
    add(session.measure(arrays), result.measured);
  else
    modelled = session.run(arrays);
  const double seconds = machine.is_host() ? seconds_since(start) : modelled;
  last_loss = loss;
  position.step += 1;
  position.sums.loss += last_loss;
  if (settings.micro_batches == 1) position.sums.right += count_right(logits, batch.labels);
  result.steps_run += 1;
  result.step_seconds += seconds;
  result.step_cycles = cycles_of(seconds);
  result.cycles += result.step_cycles;
}

void Trainer::Impl::require_finite(double loss, const TrainingRun& run) const {
  if (std::isfinite(loss)) return;
  const std::string kept = run.checkpoint.empty() || position.epochs.empty()
                               ? ""
                               : fmt::format("; {} is from before", run.checkpoint);
  throw Error(
      fmt::format("training diverged: the loss is {} after step {}, in epoch {}. A rate below {} may help, "
                  "or clipping the "
                  "gradients{}",
                  std::isnan(loss) ? "NaN" : "infinite", position.step,
                  (position.step - 1) / steps_per_epoch() + 1, settings.rate, kept));
}

TrainingProgress Trainer::Impl::progress() const {
  const uint64_t within = (position.step - 1) % steps_per_epoch() + 1;
  TrainingProgress now{.epoch = static_cast<uint32_t>((position.step - 1) / steps_per_epoch()) + 1,
                       .step = position.step,
                       .steps = steps(),
                       .loss = position.sums.loss / static_cast<double>(within)};
  if (settings.micro_batches == 1)
    now.accuracy = static_cast<double>(position.sums.right) / static_cast<double>(within * settings.batch);
  return now;
}

void Trainer::Impl::finish_epoch(const TrainingRun& run, double seconds) {
  const Clock::time_point start = Clock::now();
  const TrainingProgress now = progress();
  const Score score = evaluation.evaluate(training, standardisation, division.validation);
  require_finite(score.loss, run);
  const auto better = [&](const EpochResult& best) { return score.accuracy > best.validation_accuracy; };
  if (position.best_epoch == 0 || better(position.epochs[position.best_epoch - 1])) {
    position.best_epoch = now.epoch;
    position.best = snapshot_of(session);
  }
  position.epochs.push_back({.epoch = now.epoch,
                             .loss = now.loss,
                             .accuracy = now.accuracy,
                             .validation_loss = score.loss,
                             .validation_accuracy = score.accuracy});
  position.sums = {};
  save(run);
  position.epochs.back().seconds = seconds + seconds_since(start);
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
  if (validation_images() == 0 || impl_->test.count() == 0)
    throw UsageError(
        fmt::format("{} images for validation and {} for testing; at least one of each is needed",
                    validation_images(), impl_->test.count()));
}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

const TrainingSettings& Trainer::settings() const { return impl_->settings; }
uint64_t Trainer::training_images() const { return impl_->division.training.size(); }
uint64_t Trainer::validation_images() const { return impl_->division.validation.size(); }
uint64_t Trainer::steps_per_epoch() const { return impl_->steps_per_epoch(); }
uint64_t Trainer::step() const { return impl_->position.step; }
model::RunCost Trainer::step_cost() const { return impl_->session.cost(); }
model::RunCost Trainer::evaluation_cost() const { return impl_->evaluation.session().cost(); }
uint32_t Trainer::evaluation_batch() const { return impl_->evaluation.rows(); }
const model::Graph& Trainer::graph() const { return impl_->session.graph(); }

uint64_t Trainer::parameters() const {
  uint64_t count = 0;
  for (const model::ValueInfo& info : impl_->session.graph().values())
    if (info.kind == model::Kind::parameter) count += info.type.elements();
  return count;
}

void Trainer::resume(const std::string& checkpoint, bool allow_different_bits) {
  Impl& impl = *impl_;
  if (!impl.session.fits()) throw Error(step_cost().overflow);
  impl.position = load_checkpoint(checkpoint, impl.identity, allow_different_bits, impl.session);
}

TrainingResult Trainer::train(const TrainingRun& run) {
  Impl& impl = *impl_;
  for (const model::RunCost& cost : {step_cost(), evaluation_cost()})
    if (!cost.overflow.empty()) throw Error(cost.overflow);
  const Clock::time_point start = Clock::now();
  Clock::time_point epoch_start = start;
  TrainingResult result;
  bool stopped = false;
  while (impl.position.step < impl.steps() && !stopped) {
    impl.step(result);
    impl.require_finite(impl.last_loss, run);
    TrainingProgress progress = impl.progress();
    if (impl.position.step % impl.steps_per_epoch() == 0) {
      impl.finish_epoch(run, seconds_since(epoch_start));
      epoch_start = Clock::now();
      progress.finished = &impl.position.epochs.back();
    }
    stopped = run.progress && !run.progress(progress);
    if (stopped && progress.finished == nullptr) impl.save(run);
  }
  if (impl.position.step == impl.steps()) {
    restore(impl.position.best.value(), impl.session);
    const Score score = impl.evaluation.evaluate(impl.test, impl.standardisation, all_of(impl.test));
    result.finished = true;
    result.test_loss = score.loss;
    result.test_accuracy = score.accuracy;
  }
  result.step = impl.position.step;
  result.epochs = impl.position.epochs;
  result.best_epoch = impl.position.best_epoch;
  const auto steps = static_cast<double>(std::max<uint64_t>(1, result.steps_run));
  const auto measurements = static_cast<double>(
      (result.steps_run + kStepsPerMeasurement - kFirstMeasurement - 1) / kStepsPerMeasurement);
  result.step_seconds /= steps;
  for (double& seconds : result.measured) seconds /= measurements;
  result.evaluation_cycles = impl.cycles_of(impl.evaluation.batch_seconds());
  result.seconds = seconds_since(start);
  return result;
}

}  // namespace tessera
