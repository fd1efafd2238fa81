// Training of spiking networks.
#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/training.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "base/checksum.h"
#include "base/isa.h"
#include "data/events/recording_batch.h"
#include "data/samples.h"
#include "train/loop.h"
#include "train/network.h"
#include "train/spiking/digits.h"
#include "train/spiking/network.h"
#include "train/spiking/settings.h"
#include "train/step_runs.h"

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

/// Of a row of logits.
double loss_of(const SpikingTrainingSettings& s, uint32_t steps, std::span<const float> row, uint32_t label) {
  if (s.loss != SpikingLoss::rate) return cross_entropy_of(row, label);
  double sum = 0;
  for (uint32_t c = 0; c < row.size(); ++c)
    sum += std::pow(double{row[c]} / steps - (c == label ? kRightRate : kWrongRate), 2);
  return sum / static_cast<double>(row.size());
}

}  // namespace

struct SpikingTrainer::Impl final : Trained {
  Impl(const SpikingTrainingSettings& chosen, const RecordingSplit& recordings, Machine place,
       uint32_t most_threads)
      : settings(chosen),
        machine(std::move(place)),
        threads(most_threads),
        training(as_spikes(recordings.train)),
        testing(as_spikes(recordings.test)),
        division(divide(training.count(), settings.validation, settings.seed)),
        order(division, settings.batch, settings.seed),
        data{.steps = training.steps,
             .units = training.units,
             .classes = training.classes,
             .capacity = std::max(most_spikes(training), most_spikes(testing)),
             .has_digits = recordings.train.are_currents(),
             .activity = activity_of(training)},
        layers(layers_of(settings, data.units, data.classes)),
        trained(spiking_training_graph(settings, data), machine, {.threads = threads}),
        runs(trained, machine),
        evaluation(spiking_evaluation_graph(settings, data), trained),
        batch(training, settings.batch, data.capacity),
        logits(size_t{settings.batch} * data.classes),
        lists(settings.hidden.size()),
        loop({train::json_of(settings).dump(),
              identity_of(recordings),
              {machine.is_host() ? "host" : machine.name(), machine.tiles(),
               std::string(name_of(active_isa()))},
              order.steps_per_epoch(),
              settings.epochs * order.steps_per_epoch()},
             settings.batch, settings.rate) {
    for (Lists& of_layer : lists) {
      of_layer.num.resize(size_t{2} * data.steps * settings.batch);
      of_layer.dropped.resize(size_t{2} * settings.batch);
    }
  }

  StepResult step(uint64_t number) override;
  Score validate() override { return evaluate(training, division.validation); }
  Score test() override {
    std::vector<uint32_t> all(testing.count());
    std::iota(all.begin(), all.end(), 0U);
    return evaluate(testing, all);
  }
  model::Session& session() override { return trained; }

  /// The arrays of a session, which only reads those of the batch that is loaded.
  std::vector<model::Tensor> arrays_of(const model::Session& of, std::vector<model::Tensor> further);
  /// Runs a forward pass of the batch that lists spikes alone.
  void forward(model::Session& with, std::vector<model::Tensor> further = {});
  Score evaluate(const Recordings& recordings, std::span<const uint32_t> which);
  std::vector<SpikingActivity> activity() const;
  void calibrate();

  /// The lengths of a layer's lists, and what they dropped.
  struct Lists {
    std::vector<uint32_t> num = {}, dropped = {};
  };

  SpikingTrainingSettings settings;
  Machine machine;
  uint32_t threads;
  Recordings training, testing;
  Division division;
  BatchOrder order;
  SpikingData data;
  std::vector<SpikingLayer> layers;
  model::Session trained;
  StepRuns runs;
  model::Session evaluation;
  RecordingBatch batch;
  std::vector<float> logits;
  std::vector<Lists> lists;  ///< of hidden layers
  double evaluation_seconds = 0;
  bool is_calibrated = false;
  Loop loop;
};

std::vector<model::Tensor> SpikingTrainer::Impl::arrays_of(const model::Session& of,
                                                           std::vector<model::Tensor> further) {
  const SpikeLists spikes = batch.spikes();
  further.push_back({kSpikeIds, const_cast<uint16_t*>(spikes.ids)});
  further.push_back({kSpikeNum, const_cast<uint32_t*>(spikes.num)});
  further.push_back({kLogits, logits.data()});
  for (size_t layer = 0; layer < lists.size(); ++layer) {
    further.push_back({value_name(layer, "num"), lists[layer].num.data()});
    further.push_back({value_name(layer, "dropped"), lists[layer].dropped.data()});
  }
  return taken_by(of.graph(), std::move(further));
}

StepResult SpikingTrainer::Impl::step(uint64_t number) {
  const std::span<const uint32_t> which = order.of_step(number);
  batch.load(training, which);
  const std::span<const uint32_t> labels = batch.labels();
  std::vector<float> target_rates(logits.size(), static_cast<float>(kWrongRate));
  for (size_t i = 0; i < labels.size(); ++i)
    target_rates[i * data.classes + labels[i]] = static_cast<float>(kRightRate);
  const auto epoch = static_cast<uint32_t>(number / order.steps_per_epoch());
  auto threshold = static_cast<float>(settings.gradient_threshold_of(epoch));
  uint32_t most = settings.most_listed_of(epoch);
  auto from_zero = static_cast<uint32_t>(number), from_one = from_zero + 1;
  auto rate = static_cast<float>(settings.rate_of(number, settings.epochs * order.steps_per_epoch()));
  float loss = 0;
  const double seconds = runs.run(arrays_of(trained, {{kLabels, const_cast<uint32_t*>(labels.data())},
                                                      {kTargetRates, target_rates.data()},
                                                      {kGradientThreshold, &threshold},
                                                      {kMostListed, &most},
                                                      {kListStep, &from_zero},
                                                      {"rate", &rate},
                                                      {"step", &from_one},
                                                      {kLoss, &loss}}));
  return {.loss = loss, .right = count_right(logits, labels), .seconds = seconds, .activity = activity()};
}

std::vector<SpikingActivity> SpikingTrainer::Impl::activity() const {
  std::vector<SpikingActivity> all;
  for (size_t layer = 0; layer < lists.size(); ++layer) {
    const auto sum_of = [](const std::vector<uint32_t>& pairs, size_t which) {
      uint64_t sum = 0;
      for (size_t i = which; i < pairs.size(); i += 2) sum += pairs[i];
      return sum;
    };
    const auto& [num, dropped] = lists[layer];
    const double neurons = double{1} * data.steps * settings.batch * layers[layer].neurons;
    all.push_back({static_cast<double>(sum_of(num, 0) + sum_of(dropped, 0)) / neurons,
                   static_cast<double>(sum_of(num, 1)) / neurons, sum_of(dropped, 0) + sum_of(dropped, 1)});
  }
  return all;
}

void SpikingTrainer::Impl::forward(model::Session& with, std::vector<model::Tensor> further) {
  float threshold = std::numeric_limits<float>::infinity();
  uint32_t most = ~uint32_t{0}, step = 0;
  further.insert(further.end(), {{kGradientThreshold, &threshold}, {kMostListed, &most}, {kListStep, &step}});
  evaluation_seconds = with.run(arrays_of(with, std::move(further)));
}

Score SpikingTrainer::Impl::evaluate(const Recordings& recordings, std::span<const uint32_t> which) {
  double loss = 0;
  uint64_t right = 0;
  for (size_t first = 0; first < which.size(); first += settings.batch) {
    const size_t count = std::min<size_t>(settings.batch, which.size() - first);
    batch.load(recordings, which.subspan(first, count));
    forward(evaluation);
    const std::span<const float> rows(logits.data(), count * data.classes);
    const std::span<const uint32_t> labels = batch.labels().first(count);
    right += count_right(rows, labels);
    for (size_t i = 0; i < count; ++i)
      loss += loss_of(settings, data.steps, rows.subspan(i * data.classes, data.classes), labels[i]);
  }
  const auto count = static_cast<double>(which.size());
  return {loss / count, static_cast<double>(right) / count};
}

// Layer after layer, so that hidden ones fire as asked: scales its weights up or down until it does, then
// bisects. On this computer, for whatever machine.
void SpikingTrainer::Impl::calibrate() {
  model::Session session(spiking_evaluation_graph(settings, data),
                         machine.is_host() ? machine : Machine::host(1), {.threads = threads});
  batch.load(training, order.of_step(0));
  const auto fires = [&](size_t layer) {
    forward(session);
    return activity()[layer].firing;
  };
  for (size_t i = 0; i < lists.size(); ++i) {
    constexpr int kDoublings = 20, kHalvings = 8;
    double low = 1, high = 1, now = 1;
    const std::string name = value_name(i, "weight");
    std::vector<float> weights = session.get(name);
    const auto set = [&](double scale) {
      for (float& w : weights) w = static_cast<float>(w * (scale / now));
      session.set(name, weights);
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
    trained.set(name, weights);
  }
  is_calibrated = true;
}

SpikingTrainer::SpikingTrainer(const SpikingTrainingSettings& settings, const RecordingSplit& recordings,
                               const Machine& machine, uint32_t threads) {
  check(settings, recordings);
  make_for(machine, [&] { impl_ = std::make_unique<Impl>(settings, recordings, machine, threads); });
}
SpikingTrainer::~SpikingTrainer() = default;
SpikingTrainer::SpikingTrainer(SpikingTrainer&&) noexcept = default;
SpikingTrainer& SpikingTrainer::operator=(SpikingTrainer&&) noexcept = default;

const SpikingTrainingSettings& SpikingTrainer::settings() const { return impl_->settings; }
uint64_t SpikingTrainer::training_recordings() const { return impl_->division.training.size(); }
uint64_t SpikingTrainer::validation_recordings() const { return impl_->division.validation.size(); }
uint64_t SpikingTrainer::steps_per_epoch() const { return impl_->order.steps_per_epoch(); }
uint64_t SpikingTrainer::parameters() const { return count_parameters(impl_->layers, impl_->data); }
model::RunCost SpikingTrainer::step_cost() const { return impl_->trained.cost(); }
model::RunCost SpikingTrainer::evaluation_cost() const { return impl_->evaluation.cost(); }
const model::Graph& SpikingTrainer::graph() const { return impl_->trained.graph(); }
uint64_t SpikingTrainer::step() const { return impl_->loop.step(); }

void SpikingTrainer::resume(const std::string& checkpoint, bool allow_different_bits) {
  require_fit({step_cost()});
  impl_->loop.resume(checkpoint, allow_different_bits, impl_->trained);
  impl_->is_calibrated = true;
}

TrainingResult SpikingTrainer::train(const TrainingRun& run) {
  Impl& impl = *impl_;
  require_fit({step_cost(), evaluation_cost()});
  if (!impl.is_calibrated) impl.calibrate();
  impl.runs.restart();
  TrainingResult result = impl.loop.run(impl, run);
  impl.runs.enter(impl.evaluation_seconds, result);
  return result;
}

SpikingTraces SpikingTrainer::traces(size_t recording) {
  Impl& impl = *impl_;
  if (recording >= impl.testing.count())
    throw UsageError(fmt::format("recording {} for testing; there are {}", recording, impl.testing.count()));
  const auto which = static_cast<uint32_t>(recording);
  const uint32_t batch = impl.settings.batch, classes = impl.data.classes;
  impl.batch.load(impl.testing, {&which, 1});
  model::Session session(spiking_evaluation_graph(impl.settings, impl.data, true), impl.trained);
  std::vector<std::vector<uint16_t>> ids;
  std::vector<uint32_t> last_num(size_t{2} * impl.data.steps * batch);
  std::vector<float> potentials(size_t{impl.data.steps} * batch * classes);
  const size_t spiking = impl.layers.size() - (output_spikes(impl.settings) ? 0 : 1);
  std::vector<model::Tensor> arrays = {{value_name(impl.lists.size(), "num"), last_num.data()},
                                       {kPotentials, potentials.data()}};
  for (size_t layer = 0; layer < spiking; ++layer) {
    ids.emplace_back(size_t{impl.data.steps} * batch * impl.layers[layer].neurons);
    arrays.push_back({value_name(layer, "ids"), ids.back().data()});
  }
  impl.forward(session, std::move(arrays));
  const auto logits = std::span(impl.logits).first(classes);
  SpikingTraces traces{.steps = impl.data.steps,
                       .label = impl.testing.labels[recording],
                       .answer = static_cast<uint32_t>(std::ranges::max_element(logits) - logits.begin()),
                       .sizes = {impl.data.units}};
  const auto inputs = impl.testing.spikes(recording);
  traces.spikes.emplace_back(inputs.begin(), inputs.end());
  for (size_t layer = 0; layer < spiking; ++layer) {
    const uint32_t neurons = impl.layers[layer].neurons;
    const std::vector<uint32_t>& num = layer < impl.lists.size() ? impl.lists[layer].num : last_num;
    traces.sizes.push_back(neurons);
    auto& events = traces.spikes.emplace_back();
    for (uint32_t t = 0; t < traces.steps; ++t)
      for (uint32_t e = 0; e < num[size_t{2} * t * batch]; ++e)
        events.push_back({static_cast<uint16_t>(t), ids[layer][size_t{t} * batch * neurons + e]});
  }
  if (output_spikes(impl.settings)) return traces;
  for (uint32_t t = 0; t < traces.steps; ++t)
    for (uint32_t c = 0; c < classes; ++c)
      traces.potentials.push_back(potentials[size_t{t} * batch * classes + c]);
  return traces;
}

}  // namespace tessera
