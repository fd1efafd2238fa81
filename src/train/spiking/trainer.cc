// Training of spiking networks.
#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/training.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "base/checksum.h"
#include "base/isa.h"
#include "data/events/recording_batch.h"
#include "data/samples.h"
#include "train/loop.h"
#include "train/spiking/digits.h"
#include "train/spiking/loss.h"
#include "train/spiking/parameters.h"
#include "train/spiking/penalty.h"
#include "train/spiking/settings.h"

namespace tessera {
namespace {

using namespace train;

std::string identity_of(const RecordingSplit& recordings) {
  uint64_t sum = 0;
  const auto add = [&](const auto& items) {
    sum = sum * 31 + base::checksum(std::as_bytes(std::span(items)));
  };
  for (const Recordings* part : {&recordings.train, &recordings.test}) {
    add(part->labels);
    add(part->begin);
    add(part->events);
    add(part->currents);
  }
  return fmt::format("{}, {} for training and {} for testing, of {} steps and {} units, checksum {:016x}",
                     recordings.name, recordings.train.count(), recordings.test.count(),
                     recordings.train.steps, recordings.train.units, sum);
}

Recordings as_spikes(const Recordings& recordings) {
  return recordings.are_currents() ? digits_of(recordings) : recordings;
}

uint32_t capacity_for(const Recordings& train, const Recordings& test) {
  return std::max(most_spikes(train), most_spikes(test));
}

/// The mean of events in a step, of all units.
double activity_of(const Recordings& r) {
  return static_cast<double>(r.events.size()) /
         (static_cast<double>(r.count()) * r.steps * static_cast<double>(r.units));
}

}  // namespace

struct SpikingTrainer::Impl final : Trained {
  Impl(const SpikingTrainingSettings& chosen, const RecordingSplit& recordings, uint32_t thread_count)
      : settings(chosen),
        threads(Machine::host(thread_count).tiles()),
        training(as_spikes(recordings.train)),
        testing(as_spikes(recordings.test)),
        division(divide(training.count(), settings.validation, settings.seed)),
        layers(layers_of(settings, training.units, training.classes)),
        parameters(settings, layers, recordings.train.are_currents(), threads),
        network(layers, training.steps, settings.batch, options()),
        output(settings.loss, network),
        penalty(settings.activity_penalty, settings.activity_cap, network),
        batch(training, settings.batch, capacity_for(training, testing)),
        loop({train::json_of(settings).dump(),
              identity_of(recordings),
              {"host", threads, std::string(name_of(active_isa()))},
              steps_per_epoch(),
              settings.epochs * steps_per_epoch()},
             settings.batch, settings.rate) {
    calibrate();
  }

  uint64_t steps_per_epoch() const { return division.training.size() / settings.batch; }
  SpikingNetworkOptions options() const {
    return {.input_capacity = capacity_for(training, testing),
            .learns_dynamics = settings.learns_dynamics,
            .hidden_upstream = settings.activity_penalty > 0,
            .expected_input_activity = activity_of(training),
            .threads = threads};
  }

  StepResult step(uint64_t number) override;
  Score validate() override { return evaluate(training, division.validation); }
  Score test() override {
    std::vector<uint32_t> all(testing.count());
    std::iota(all.begin(), all.end(), 0U);
    return evaluate(testing, all);
  }
  model::Session& session() override { return parameters.session(); }

  void load_batch(uint64_t number);
  void forward(const SpikingControl& control) {
    network.forward(batch.spikes(), parameters.values(), control);
  }
  /// Lists spikes alone.
  void forward_only() { forward({.gradient_threshold = std::numeric_limits<float>::infinity()}); }
  Score evaluate(const Recordings& recordings, std::span<const uint32_t> which);
  std::vector<SpikingActivity> activity() const;
  void calibrate();

  SpikingTrainingSettings settings;
  uint32_t threads;
  Recordings training, testing;
  Division division;
  std::vector<SpikingLayer> layers;
  SpikingParameters parameters;
  SpikingNetwork network;
  SpikingOutput output;
  ActivityPenalty penalty;
  RecordingBatch batch;
  Loop loop;
  std::vector<uint32_t> order;  ///< of the recordings in an epoch
  std::optional<uint64_t> order_epoch;
};

void SpikingTrainer::Impl::load_batch(uint64_t number) {
  const uint64_t epoch = number / steps_per_epoch(), within = number % steps_per_epoch();
  if (order_epoch != epoch) {
    order = shuffled(division.training, settings.seed, static_cast<uint32_t>(epoch));
    order_epoch = epoch;
  }
  batch.load(training, std::span(order).subspan(within * settings.batch, settings.batch));
}

StepResult SpikingTrainer::Impl::step(uint64_t number) {
  using Clock = std::chrono::steady_clock;
  load_batch(number);
  const Clock::time_point start = Clock::now();
  const auto epoch = static_cast<uint32_t>(number / steps_per_epoch());
  forward({.gradient_threshold = static_cast<float>(settings.gradient_threshold_of(epoch)),
           .most_listed = settings.most_listed_of(epoch),
           .seed = settings.seed,
           .step = static_cast<uint32_t>(number)});
  output.read(network);
  const SpikingOutput::Result result = output.evaluate(batch.labels());
  const double of_activity = penalty.evaluate(network);
  network.gradients(batch.spikes(), parameters.values(), output.gradient(network, batch.labels()),
                    parameters.gradients(), nullptr, nullptr, penalty.gradients(network));
  parameters.update(number, settings.rate_of(number, settings.epochs * steps_per_epoch()));
  return {.loss = result.loss / settings.batch + of_activity,
          .right = result.right,
          .seconds = std::chrono::duration<double>(Clock::now() - start).count(),
          .activity = activity()};
}

std::vector<SpikingActivity> SpikingTrainer::Impl::activity() const {
  std::vector<SpikingActivity> all;
  for (size_t i = 0; i + 1 < layers.size(); ++i) {
    const SpikingCounts counts = network.counts(i);
    const double neurons = double{1} * training.steps * settings.batch * layers[i].neurons;
    all.push_back({static_cast<double>(counts.spikes + counts.dropped_spikes) / neurons,
                   static_cast<double>(counts.spikes + counts.candidates) / neurons,
                   counts.dropped_spikes + counts.dropped_candidates});
  }
  return all;
}

Score SpikingTrainer::Impl::evaluate(const Recordings& recordings, std::span<const uint32_t> which) {
  parameters.load();
  double loss = 0;
  uint64_t right = 0;
  for (size_t first = 0; first < which.size(); first += settings.batch) {
    const size_t count = std::min<size_t>(settings.batch, which.size() - first);
    batch.load(recordings, which.subspan(first, count));
    forward_only();
    output.read(network);
    const SpikingOutput::Result result = output.evaluate(batch.labels().first(count));
    loss += result.loss;
    right += result.right;
  }
  const auto count = static_cast<double>(which.size());
  return {loss / count, static_cast<double>(right) / count};
}

// Layer after layer, so that hidden ones fire as asked: scales its weights up or down until it does, then
// bisects.
void SpikingTrainer::Impl::calibrate() {
  load_batch(0);
  const auto fires = [&](size_t layer) {
    forward_only();
    return activity()[layer].firing;
  };
  for (size_t i = 0; i + 1 < layers.size(); ++i) {
    constexpr int kDoublings = 20, kHalvings = 8;
    double low = 1, high = 1, now = 1;
    const auto set = [&](double scale) {
      parameters.scale(i, scale / now);
      now = scale;
    };
    for (int n = 0; n < kDoublings && fires(i) < settings.initial_firing; ++n) {
      low = now;
      set(high = 2 * now);
    }
    for (int n = 0; n < kDoublings && fires(i) > settings.initial_firing; ++n) {
      high = now;
      set(low = now / 2);
    }
    for (int n = 0; n < kHalvings; ++n) {
      set((low + high) / 2);
      (fires(i) < settings.initial_firing ? low : high) = now;
    }
  }
}

SpikingTrainer::SpikingTrainer(const SpikingTrainingSettings& settings, const RecordingSplit& recordings,
                               uint32_t threads) {
  check(settings, recordings);
  impl_ = std::make_unique<Impl>(settings, recordings, threads);
}
SpikingTrainer::~SpikingTrainer() = default;
SpikingTrainer::SpikingTrainer(SpikingTrainer&&) noexcept = default;
SpikingTrainer& SpikingTrainer::operator=(SpikingTrainer&&) noexcept = default;

const SpikingTrainingSettings& SpikingTrainer::settings() const { return impl_->settings; }
uint64_t SpikingTrainer::training_recordings() const { return impl_->division.training.size(); }
uint64_t SpikingTrainer::validation_recordings() const { return impl_->division.validation.size(); }
uint64_t SpikingTrainer::steps_per_epoch() const { return impl_->steps_per_epoch(); }
uint64_t SpikingTrainer::parameters() const { return impl_->parameters.count(); }
double SpikingTrainer::predicted_step_seconds() const { return impl_->network.predicted_seconds(); }
uint64_t SpikingTrainer::stash_bytes() const { return impl_->network.stash_bytes(); }
uint64_t SpikingTrainer::step() const { return impl_->loop.step(); }

void SpikingTrainer::resume(const std::string& checkpoint, bool allow_different_bits) {
  impl_->loop.resume(checkpoint, allow_different_bits, impl_->session());
  impl_->parameters.load();
}

TrainingResult SpikingTrainer::train(const TrainingRun& run) { return impl_->loop.run(*impl_, run); }

SpikingTraces SpikingTrainer::traces(size_t recording) {
  Impl& impl = *impl_;
  if (recording >= impl.testing.count())
    throw UsageError(fmt::format("recording {} for testing; there are {}", recording, impl.testing.count()));
  const auto which = static_cast<uint32_t>(recording);
  impl.evaluate(impl.testing, {&which, 1});
  const uint32_t classes = impl.training.classes;
  const auto logits = impl.output.logits().first(classes);
  SpikingTraces traces{.steps = impl.training.steps,
                       .label = impl.testing.labels[recording],
                       .answer = static_cast<uint32_t>(std::ranges::max_element(logits) - logits.begin()),
                       .sizes = {impl.training.units}};
  const auto inputs = impl.testing.spikes(recording);
  traces.spikes.emplace_back(inputs.begin(), inputs.end());
  for (size_t i = 0; i < impl.layers.size() && impl.layers[i].neuron.spikes; ++i) {
    traces.sizes.push_back(impl.layers[i].neurons);
    auto& events = traces.spikes.emplace_back();
    const SpikeLists lists = impl.network.spikes(i);
    for (uint32_t t = 0; t < traces.steps; ++t) {
      const size_t list = size_t{t} * impl.settings.batch;
      for (uint32_t e = 0; e < lists.num[2 * list]; ++e)
        events.push_back({static_cast<uint16_t>(t), lists.ids[list * lists.capacity + e]});
    }
  }
  if (impl.layers.back().neuron.spikes) return traces;
  const auto u = impl.network.potentials(impl.layers.size() - 1);
  for (uint32_t t = 0; t < traces.steps; ++t)
    for (uint32_t c = 0; c < classes; ++c)
      traces.potentials.push_back(u[size_t{t} * impl.settings.batch * classes + c]);
  return traces;
}

}  // namespace tessera
