#include "train/loop.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace tessera::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Sums over the steps of an epoch as means.
std::vector<SpikingActivity> mean_of(std::vector<SpikingActivity> sums, uint64_t steps) {
  for (SpikingActivity& layer : sums) {
    layer.firing /= static_cast<double>(steps);
    layer.listed /= static_cast<double>(steps);
  }
  return sums;
}

}  // namespace

void Loop::resume(const std::string& checkpoint, bool allow_different_place, model::Session& session) {
  position_ = load_checkpoint(checkpoint, identity_, allow_different_place, session);
}

void Loop::save(Trained& network, const TrainingRun& run) const {
  if (!run.checkpoint.empty()) save_checkpoint(run.checkpoint, identity_, position_, network.session());
}

void Loop::add(const StepResult& step) {
  position_.step += 1;
  position_.sums.loss += step.loss;
  counts_right_ = step.right.has_value();
  position_.sums.right += step.right.value_or(0);
  std::vector<SpikingActivity>& sums = position_.sums.activity;
  sums.resize(step.activity.size());
  for (size_t i = 0; i < sums.size(); ++i) {
    sums[i].firing += step.activity[i].firing;
    sums[i].listed += step.activity[i].listed;
    sums[i].dropped += step.activity[i].dropped;
  }
}

void Loop::require_finite(double loss, const TrainingRun& run) const {
  if (std::isfinite(loss)) return;
  const std::string kept = run.checkpoint.empty() || position_.epochs.empty()
                               ? ""
                               : fmt::format("; {} is from before", run.checkpoint);
  throw Error(
      fmt::format("training diverged: the loss is {} after step {}, in epoch {}. A rate below {} may help, "
                  "or clipping the "
                  "gradients{}",
                  std::isnan(loss) ? "NaN" : "infinite", position_.step,
                  (position_.step - 1) / identity_.steps_per_epoch + 1, rate_, kept));
}

TrainingProgress Loop::progress() const {
  const uint64_t within = (position_.step - 1) % identity_.steps_per_epoch + 1;
  TrainingProgress now{.epoch = static_cast<uint32_t>((position_.step - 1) / identity_.steps_per_epoch) + 1,
                       .step = position_.step,
                       .steps = identity_.steps,
                       .loss = position_.sums.loss / static_cast<double>(within)};
  if (counts_right_)
    now.accuracy = static_cast<double>(position_.sums.right) / static_cast<double>(within * batch_);
  return now;
}

void Loop::finish_epoch(Trained& network, const TrainingRun& run, double seconds) {
  const Clock::time_point start = Clock::now();
  const TrainingProgress now = progress();
  const Score score = network.validate();
  require_finite(score.loss, run);
  const auto better = [&](const EpochResult& best) { return score.accuracy > best.validation_accuracy; };
  if (position_.best_epoch == 0 || better(position_.epochs[position_.best_epoch - 1])) {
    position_.best_epoch = now.epoch;
    position_.best = snapshot_of(network.session());
  }
  position_.epochs.push_back({.epoch = now.epoch,
                              .loss = now.loss,
                              .accuracy = now.accuracy,
                              .validation_loss = score.loss,
                              .validation_accuracy = score.accuracy,
                              .activity = mean_of(position_.sums.activity, identity_.steps_per_epoch)});
  position_.sums = {};
  save(network, run);
  position_.epochs.back().seconds = seconds + seconds_since(start);
}

TrainingResult Loop::run(Trained& network, const TrainingRun& run) {
  const Clock::time_point start = Clock::now();
  Clock::time_point epoch_start = start;
  TrainingResult result;
  bool stopped = false;
  while (position_.step < identity_.steps && !stopped) {
    const StepResult step = network.step(position_.step);
    add(step);
    result.steps_run += 1;
    result.step_seconds += step.seconds;
    require_finite(step.loss, run);
    TrainingProgress now = progress();
    if (position_.step % identity_.steps_per_epoch == 0) {
      finish_epoch(network, run, seconds_since(epoch_start));
      epoch_start = Clock::now();
      now.finished = &position_.epochs.back();
    }
    stopped = run.progress && !run.progress(now);
    if (stopped && now.finished == nullptr) save(network, run);
  }
  if (position_.step == identity_.steps) {
    restore(position_.best.value(), network.session());
    const Score score = network.test();
    result.finished = true;
    result.test_loss = score.loss;
    result.test_accuracy = score.accuracy;
  }
  result.step = position_.step;
  result.epochs = position_.epochs;
  result.best_epoch = position_.best_epoch;
  result.step_seconds /= static_cast<double>(std::max<uint64_t>(1, result.steps_run));
  result.seconds = seconds_since(start);
  return result;
}

}  // namespace tessera::train
