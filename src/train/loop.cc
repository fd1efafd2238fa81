// Steps, epochs, and their results.
#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ranks/agreement.h"
#include "train/checkpoint.h"
#include "train/network.h"
#include "train/trainer_impl.h"

namespace tessera {
namespace {

using namespace train;

/// Sums over the steps of an epoch as means.
std::vector<SpikingActivity> mean_of(std::vector<SpikingActivity> sums, uint64_t steps) {
  for (SpikingActivity& layer : sums) {
    layer.firing /= static_cast<double>(steps);
    layer.listed /= static_cast<double>(steps);
  }
  return sums;
}

constexpr uint64_t kStepsPerMeasurement = 32;
constexpr uint64_t kFirstMeasurement = 4;

void add_seconds(const graph::RunCost& cost, std::vector<double>& seconds) {
  seconds.resize(cost.operations.size());
  for (size_t i = 0; i < seconds.size(); ++i) seconds[i] += cost.operations[i].seconds;
}

}  // namespace

void train::require_finite(std::string_view name, double loss, uint64_t step, uint64_t epoch, double lr,
                           const std::string& kept) {
  if (std::isfinite(loss)) return;
  throw Error(
      fmt::format("training diverged: the {} is {} after step {}, in epoch {}. A learning rate below {} may "
                  "help, or clipping the gradients{}",
                  name, std::isnan(loss) ? "NaN" : "infinite", step, epoch, lr,
                  kept.empty() ? "" : fmt::format("; {} is from before", kept)));
}

std::span<const uint32_t> TrainerImpl::samples_of(uint64_t step) {
  const uint64_t epoch = step / identity.steps_per_epoch, within = step % identity.steps_per_epoch;
  if (order_is_of_ != epoch) {
    order_ = shuffled(division.training, what.settings.seed, static_cast<uint32_t>(epoch));
    order_is_of_ = epoch;
  }
  return std::span(order_).subspan(within * what.settings.batch, what.settings.batch);
}

uint64_t TrainerImpl::cycles_of(double seconds) const {
  return machine.is_host() ? 0 : static_cast<uint64_t>(std::llround(seconds * machine.clock_hz()));
}

double TrainerImpl::run_timed(std::span<const graph::Tensor> arrays) {
  const Clock::time_point start = Clock::now();
  double seconds = 0;
  if (machine.is_host() && taken_.steps % kStepsPerMeasurement == kFirstMeasurement) {
    add_seconds(trained().measure(arrays), taken_.measured);
    ++taken_.measurements;
  } else {
    trained().run(arrays);
    seconds = trained().last_seconds();
  }
  ++taken_.steps;
  if (machine.is_host()) seconds = seconds_since(start);
  taken_.step_cycles = cycles_of(seconds);
  taken_.cycles += taken_.step_cycles;
  return seconds;
}

StepResult TrainerImpl::run_step(uint64_t number, std::span<const uint32_t> labels,
                                 std::vector<graph::Tensor> arrays) {
  auto from_one = static_cast<uint32_t>(number + 1);
  auto lr = static_cast<float>(what.settings.lr_of(number, steps()));
  float loss = 0;
  begin_changes(number);
  arrays.insert(arrays.end(), {{kLabels, const_cast<uint32_t*>(labels.data())},
                               {"lr", &lr},
                               {"step", &from_one},
                               {kLoss, &loss},
                               {kLogits, logits.data()}});
  const double seconds = run_timed(taken_by(graph(), std::move(arrays)));
  StepResult result{.loss = loss, .seconds = seconds};
  if (graph().outputs().contains(kLogits))
    result.right = ranks::sum_of(communicator.get(),
                                 count_right(std::span(logits).first(labels.size() * what.classes), labels));
  return result;
}

void TrainerImpl::save(const TrainingRun& run) {
  if (!run.checkpoint.empty()) save(run.checkpoint);
}

void TrainerImpl::save(const std::string& checkpoint) {
  if (last) restore(*last, trained());
  const auto show_best = [&] {
    if (last) restore(position.best.value(), trained());
  };
  try {
    save_checkpoint(checkpoint, identity, position, trained(), communicator.get());
  } catch (...) {
    show_best();
    throw;
  }
  show_best();
}

void TrainerImpl::take_best() {
  if (last || position.best_epoch == position.epochs.size()) return;
  last = whole_of(trained());
  restore(position.best.value(), trained());
}

void TrainerImpl::add(const StepResult& step) {
  position.step += 1;
  position.sums.loss += step.loss;
  counts_right_ = step.right.has_value();
  position.sums.right += step.right.value_or(0);
  std::vector<SpikingActivity>& sums = position.sums.activity;
  sums.resize(step.activity.size());
  for (size_t i = 0; i < sums.size(); ++i) {
    sums[i].firing += step.activity[i].firing;
    sums[i].listed += step.activity[i].listed;
    sums[i].dropped += step.activity[i].dropped;
  }
}

void TrainerImpl::require_finite(std::string_view name, double loss, const TrainingRun& run) {
  const bool has_checkpoint = !run.checkpoint.empty() && !position.epochs.empty();
  train::require_finite(name, loss, position.step, (position.step - 1) / identity.steps_per_epoch + 1,
                        what.settings.lr, has_checkpoint ? run.checkpoint : "");
}

TrainingProgress TrainerImpl::progress() const {
  const uint64_t within = (position.step - 1) % identity.steps_per_epoch + 1;
  TrainingProgress now{.epoch = static_cast<uint32_t>((position.step - 1) / identity.steps_per_epoch) + 1,
                       .step = position.step,
                       .steps = identity.steps,
                       .loss = position.sums.loss / static_cast<double>(within)};
  if (counts_right_)
    now.accuracy =
        static_cast<double>(position.sums.right) / static_cast<double>(within * what.settings.batch);
  return now;
}

void TrainerImpl::finish_epoch(const TrainingRun& run, double seconds) {
  const Clock::time_point start = Clock::now();
  const TrainingProgress now = progress();
  const SampleScore score = validate();
  require_finite("validation loss", score.loss, run);
  const auto better = [&](const EpochResult& best) { return score.accuracy > best.validation_accuracy; };
  if (position.best_epoch == 0 || better(position.epochs[position.best_epoch - 1])) {
    position.best_epoch = now.epoch;
    position.best = snapshot_of(trained());
  }
  position.epochs.push_back({.epoch = now.epoch,
                             .loss = now.loss,
                             .accuracy = now.accuracy,
                             .validation_loss = score.loss,
                             .validation_accuracy = score.accuracy,
                             .activity = mean_of(position.sums.activity, identity.steps_per_epoch)});
  position.sums = {};
  unfinished = 0;
  save(run);
  position.epochs.back().seconds = seconds + seconds_since(start);
}

TrainingResult TrainerImpl::train(const TrainingRun& run) {
  if (communicator != nullptr)
    ranks::require_equal(*communicator, {{"number of steps so far", fmt::format("{}", position.step)},
                                         {"checkpoint", text_of(position)}});
  const Clock::time_point start = Clock::now();
  Clock::time_point epoch_start = start;
  TrainingResult result;
  taken_ = {};
  bool stopped = false;
  while (position.step < identity.steps && !stopped) {
    const StepResult taken = step(position.step);
    add(taken);
    result.steps_run += 1;
    result.step_seconds += taken.seconds;
    require_finite("loss", taken.loss, run);
    TrainingProgress now = progress();
    now.step_loss = taken.loss;
    if (position.step % identity.steps_per_epoch == 0 || position.step == identity.steps) {
      finish_epoch(run, seconds_since(epoch_start));
      epoch_start = Clock::now();
      now.finished = &position.epochs.back();
    }
    unfinished = 0;
    stopped = ranks::is_any(communicator.get(), run.progress && !run.progress(now));
    if (stopped && now.finished == nullptr) save(run);
  }
  if (position.step == identity.steps) {
    take_best();
    const SampleScore score = test();
    result.finished = true;
    result.test_loss = score.loss;
    result.test_accuracy = score.accuracy;
  }
  result.step = position.step;
  result.epochs = position.epochs;
  result.best_epoch = position.best_epoch;
  result.step_seconds /= static_cast<double>(std::max<uint64_t>(1, result.steps_run));
  result.seconds = seconds_since(start);
  result.measured = taken_.measured;
  for (double& seconds : result.measured) seconds /= static_cast<double>(taken_.measurements);
  result.cycles = taken_.cycles;
  result.step_cycles = taken_.step_cycles;
  result.evaluation_cycles = cycles_of(evaluation_seconds);
  return result;
}

}  // namespace tessera
