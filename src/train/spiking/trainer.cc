// Training of spiking networks.
#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/training.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/checksum.h"
#include "data/events/recording_batch.h"
#include "io/json_text.h"
#include "train/network.h"
#include "train/spiking/digits.h"
#include "train/spiking/network.h"
#include "train/spiking/settings.h"
#include "train/trainer_impl.h"

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

/// The mean of events in a step, of all units.
double activity_of(const Recordings& r) {
  return static_cast<double>(r.events.size()) /
         (static_cast<double>(r.count()) * r.steps * static_cast<double>(r.units));
}

/// Recordings as lists of spikes.
struct Spikes {
  Recordings training, testing;
  SpikingData data;

  explicit Spikes(const RecordingSplit& recordings)
      : training(as_spikes(recordings.train)),
        testing(as_spikes(recordings.test)),
        data{.steps = training.steps,
             .units = training.units,
             .classes = training.classes,
             .capacity = std::max(most_spikes(training), most_spikes(testing)),
             .has_digits = recordings.train.are_currents(),
             .activity = activity_of(training)} {}
};

Trainable trainable(const SpikingTrainingSettings& settings, const RecordingSplit& recordings,
                    const Spikes& spikes, const Machine& machine) {
  return {.settings = settings,
          .settings_json = io::json_text(train::json_of(settings)),
          .data = identity_of(recordings),
          .training_samples = spikes.training.count(),
          .test_samples = spikes.testing.count(),
          .classes = spikes.data.classes,
          .training = spiking_training_graph(settings, spikes.data),
          .evaluation = spiking_evaluation_graph(settings, spikes.data),
          .evaluation_rows = settings.batch,
          .machine = host_or_name(machine)};
}

class SpikingTrainer final : public TrainerImpl {
 public:
  SpikingTrainer(const SpikingTrainingSettings& chosen, const RecordingSplit& recordings, Spikes spikes,
                 const Machine& place, uint32_t most_threads, bool only_estimates)
      : TrainerImpl(trainable(chosen, recordings, spikes, place), place, most_threads, only_estimates),
        settings_(chosen),
        training_(std::move(spikes.training)),
        testing_(std::move(spikes.testing)),
        data_(spikes.data),
        layers_(layers_of(chosen, data_.units, data_.classes)),
        batch_(training_, chosen.batch, data_.capacity),
        lists_(chosen.hidden.size()) {
    for (Lists& of_layer : lists_) {
      of_layer.num.resize(size_t{2} * data_.steps * chosen.batch);
      of_layer.dropped.resize(size_t{2} * chosen.batch);
    }
  }

  void prepare() override;
  uint64_t parameters() const override { return count_parameters(layers_, data_); }
  SpikingTraces traces(size_t recording) override;

 private:
  StepResult step(uint64_t number) override;
  std::span<const uint32_t> evaluate_batch(bool of_test, std::span<const uint32_t> which) override {
    batch_.load(of_test ? testing_ : training_, which);
    forward(evaluation());
    return batch_.labels();
  }
  double loss_of(std::span<const float> row, uint32_t label) const override;

  /// Adds the arrays of the loaded batch, which sessions only read, and of layers.
  std::vector<graph::Tensor> with_batch(std::vector<graph::Tensor> arrays);
  /// Runs a forward pass of the batch that lists spikes alone.
  void forward(graph::Session& with, std::vector<graph::Tensor> further = {});
  std::vector<SpikingActivity> activity() const;

  /// The lengths of a layer's lists, and what they dropped.
  struct Lists {
    std::vector<uint32_t> num = {}, dropped = {};
  };

  SpikingTrainingSettings settings_;
  Recordings training_, testing_;
  SpikingData data_;
  std::vector<SpikingLayer> layers_;
  RecordingBatch batch_;
  std::vector<Lists> lists_;  ///< of hidden layers
};

double SpikingTrainer::loss_of(std::span<const float> row, uint32_t label) const {
  if (settings_.loss != SpikingLoss::rate) return TrainerImpl::loss_of(row, label);
  double sum = 0;
  for (uint32_t c = 0; c < row.size(); ++c)
    sum += std::pow(double{row[c]} / data_.steps - (c == label ? kRightRate : kWrongRate), 2);
  return sum / static_cast<double>(row.size());
}

std::vector<graph::Tensor> SpikingTrainer::with_batch(std::vector<graph::Tensor> arrays) {
  const SpikeLists spikes = batch_.spikes();
  arrays.push_back({kSpikeIds, const_cast<uint16_t*>(spikes.ids)});
  arrays.push_back({kSpikeNum, const_cast<uint32_t*>(spikes.num)});
  for (size_t layer = 0; layer < lists_.size(); ++layer) {
    arrays.push_back({value_name(layer, "num"), lists_[layer].num.data()});
    arrays.push_back({value_name(layer, "dropped"), lists_[layer].dropped.data()});
  }
  return arrays;
}

StepResult SpikingTrainer::step(uint64_t number) {
  const std::span<const uint32_t> which = samples_of(number);
  batch_.load(training_, which);
  const std::span<const uint32_t> labels = batch_.labels();
  std::vector<float> target_rates(logits.size(), static_cast<float>(kWrongRate));
  for (size_t i = 0; i < labels.size(); ++i)
    target_rates[i * data_.classes + labels[i]] = static_cast<float>(kRightRate);
  const auto epoch = static_cast<uint32_t>(number / identity.steps_per_epoch);
  auto threshold = static_cast<float>(settings_.gradient_threshold_of(epoch));
  uint32_t most = settings_.most_listed_of(epoch);
  auto from_zero = static_cast<uint32_t>(number);
  StepResult result = run_step(number, labels,
                               with_batch({{kTargetRates, target_rates.data()},
                                           {kGradientThreshold, &threshold},
                                           {kMostListed, &most},
                                           {kListStep, &from_zero}}));
  result.activity = activity();
  return result;
}

std::vector<SpikingActivity> SpikingTrainer::activity() const {
  std::vector<SpikingActivity> all;
  for (size_t layer = 0; layer < lists_.size(); ++layer) {
    const auto sum_of = [](const std::vector<uint32_t>& pairs, size_t which) {
      uint64_t sum = 0;
      for (size_t i = which; i < pairs.size(); i += 2) sum += pairs[i];
      return sum;
    };
    const auto& [num, dropped] = lists_[layer];
    const double neurons = double{1} * data_.steps * settings_.batch * layers_[layer].neurons;
    all.push_back({static_cast<double>(sum_of(num, 0) + sum_of(dropped, 0)) / neurons,
                   static_cast<double>(sum_of(num, 1)) / neurons, sum_of(dropped, 0) + sum_of(dropped, 1)});
  }
  return all;
}

void SpikingTrainer::forward(graph::Session& with, std::vector<graph::Tensor> further) {
  float threshold = std::numeric_limits<float>::infinity();
  uint32_t most = ~uint32_t{0}, step = 0;
  further.insert(
      further.end(),
      {{kGradientThreshold, &threshold}, {kMostListed, &most}, {kListStep, &step}, {kLogits, logits.data()}});
  with.run(taken_by(with.graph(), with_batch(std::move(further))));
  evaluation_seconds = with.last_seconds();
}

// Adjusts one layer after the other until it fires at the requested rate: scales the weights of a hidden
// layer up or down until it does, then bisects. Runs on the host, whatever the machine.
void SpikingTrainer::prepare() {
  graph::Session session(spiking_evaluation_graph(settings_, data_),
                         machine.is_host() ? machine : Machine::host(1), {.threads = threads});
  batch_.load(training_, samples_of(0));
  const auto fires = [&](size_t layer) {
    forward(session);
    return activity()[layer].firing;
  };
  for (size_t i = 0; i < lists_.size(); ++i) {
    constexpr int kDoublings = 20, kHalvings = 8;
    double low = 1, high = 1, now = 1;
    const std::string name = value_name(i, "weight");
    std::vector<float> weights = session.get(name);
    const auto set = [&](double scale) {
      for (float& w : weights) w = static_cast<float>(w * (scale / now));
      session.set(name, weights);
      now = scale;
    };
    for (int n = 0; n < kDoublings && fires(i) < settings_.initial_firing; ++n) {
      low = now;
      set(high = 2 * now);
    }
    for (int n = 0; n < kDoublings && fires(i) > settings_.initial_firing; ++n) {
      high = now;
      set(low = now / 2);
    }
    for (int n = 0; n < kHalvings; ++n) {
      set((low + high) / 2);
      (fires(i) < settings_.initial_firing ? low : high) = now;
    }
    trained().set(name, weights);
  }
}

SpikingTraces SpikingTrainer::traces(size_t recording) {
  if (recording >= testing_.count())
    throw UsageError(fmt::format("recording {} for testing; there are {}", recording, testing_.count()));
  const auto which = static_cast<uint32_t>(recording);
  const uint32_t batch = what.settings.batch, classes = data_.classes;
  batch_.load(testing_, {&which, 1});
  graph::Session session(spiking_evaluation_graph(settings_, data_, true), trained());
  std::vector<std::vector<uint16_t>> ids;
  std::vector<uint32_t> last_num(size_t{2} * data_.steps * batch);
  std::vector<float> potentials(size_t{data_.steps} * batch * classes);
  const size_t spiking = layers_.size() - (output_spikes(settings_) ? 0 : 1);
  std::vector<graph::Tensor> arrays = {{value_name(lists_.size(), "num"), last_num.data()},
                                       {kPotentials, potentials.data()}};
  for (size_t layer = 0; layer < spiking; ++layer) {
    ids.emplace_back(size_t{data_.steps} * batch * layers_[layer].neurons);
    arrays.push_back({value_name(layer, "ids"), ids.back().data()});
  }
  forward(session, std::move(arrays));
  const auto of_recording = std::span(logits).first(classes);
  SpikingTraces traces{
      .steps = data_.steps,
      .label = testing_.labels[recording],
      .answer = static_cast<uint32_t>(std::ranges::max_element(of_recording) - of_recording.begin()),
      .sizes = {data_.units}};
  const auto inputs = testing_.spikes(recording);
  traces.spikes.emplace_back(inputs.begin(), inputs.end());
  for (size_t layer = 0; layer < spiking; ++layer) {
    const uint32_t neurons = layers_[layer].neurons;
    const std::vector<uint32_t>& num = layer < lists_.size() ? lists_[layer].num : last_num;
    traces.sizes.push_back(neurons);
    auto& events = traces.spikes.emplace_back();
    for (uint32_t t = 0; t < traces.steps; ++t)
      for (uint32_t e = 0; e < num[size_t{2} * t * batch]; ++e)
        events.push_back({static_cast<uint16_t>(t), ids[layer][size_t{t} * batch * neurons + e]});
  }
  if (output_spikes(settings_)) return traces;
  for (uint32_t t = 0; t < traces.steps; ++t)
    for (uint32_t c = 0; c < classes; ++c)
      traces.potentials.push_back(potentials[size_t{t} * batch * classes + c]);
  return traces;
}

std::unique_ptr<TrainerImpl> spiking_trainer(const SpikingTrainingSettings& settings,
                                             const RecordingSplit& recordings, const Machine& machine,
                                             uint32_t threads, bool only_estimates) {
  check(settings, recordings);
  return make_for(machine, [&] {
    return std::make_unique<SpikingTrainer>(settings, recordings, Spikes(recordings), machine, threads,
                                            only_estimates);
  });
}

}  // namespace

Trainer::Trainer(const SpikingTrainingSettings& settings, const RecordingSplit& recordings,
                 const Machine& machine, uint32_t threads)
    : impl_(spiking_trainer(settings, recordings, machine, threads, false)) {}

Trainer Trainer::for_estimates(const SpikingTrainingSettings& settings, const RecordingSplit& recordings,
                               const Machine& machine, uint32_t threads) {
  return Trainer(spiking_trainer(settings, recordings, machine, threads, true));
}

}  // namespace tessera
