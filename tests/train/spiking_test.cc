// Spiking networks on small random manifolds: they learn, their gradients, and interruptions change nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/training.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <utility>

#include "base/random.h"
#include "data/events/binning.h"
#include "io/files.h"
#include "support/error_of.h"
#include "support/number_of.h"
#include "support/rewritten_file.h"
#include "train/network.h"
#include "train/spiking/digits.h"
#include "train/spiking/network.h"
#include "train/spiking/settings.h"

namespace tessera {
namespace {

using test::content_of;
using test::error_of;
using test::says;
using ::testing::ElementsAre;

RecordingSplit small_randman(uint32_t steps = 40) {
  return load_recordings("randman", "",
                         {.steps = steps, .randman = {.units = 12, .classes = 4, .samples = 150}, .seed = 2});
}
const RecordingSplit& recordings() {
  static const RecordingSplit set = small_randman();
  return set;
}

SpikingTrainingSettings settings_of(SpikingLoss loss, uint32_t epochs) {
  SpikingTrainingSettings s;
  s.hidden = {48};
  s.neuron.synaptic = true;
  s.current_decay = 0.8;
  s.loss = loss;
  s.lr = 0.01;
  s.batch = 20;
  s.epochs = epochs;
  s.seed = 3;
  return s;
}

class SpikingTrainerTest : public testing::TestWithParam<SpikingLoss> {};

TEST_P(SpikingTrainerTest, Learns) {
  Trainer trainer(settings_of(GetParam(), 8), recordings(), Machine::host(1));
  EXPECT_EQ(trainer.training_samples(), 432u);
  EXPECT_EQ(trainer.validation_samples(), 48u);
  EXPECT_EQ(trainer.steps_per_epoch(), 21u);
  const bool counts = GetParam() == SpikingLoss::spikes || GetParam() == SpikingLoss::rate;
  EXPECT_EQ(trainer.parameters(), 12u * 48 + 48 * 4 + 3 + (counts ? 3 : 1));
  const TrainingResult result = trainer.train();
  ASSERT_TRUE(result.finished);
  ASSERT_EQ(result.epochs.size(), 8u);
  EXPECT_GE(*result.test_accuracy, counts ? 0.75 : 0.85);
  EXPECT_LT(result.epochs.back().loss, 0.75 * result.epochs.front().loss);
  for (const EpochResult& epoch : result.epochs) {
    ASSERT_EQ(epoch.activity.size(), 1u);
    EXPECT_GT(epoch.activity[0].firing, 0);
    EXPECT_LT(epoch.activity[0].firing, 0.3);
    EXPECT_EQ(epoch.activity[0].listed, 1);  // all pass gradients
    EXPECT_EQ(epoch.activity[0].dropped, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(, SpikingTrainerTest,
                         testing::Values(SpikingLoss::spikes, SpikingLoss::last, SpikingLoss::maximum,
                                         SpikingLoss::mean, SpikingLoss::rate),
                         [](const auto& of) { return std::string(name_of(of.param)); });

TEST(SpikingTrainer, FiresAsAskedBeforeItLearns) {
  SpikingTrainingSettings settings = settings_of(SpikingLoss::last, 1);
  settings.hidden = {64, 32};
  settings.lr = 1e-9;
  settings.initial_firing = 0.06;
  const TrainingResult result = Trainer(settings, recordings(), Machine::host(1)).train();
  for (const SpikingActivity& layer : result.epochs[0].activity) EXPECT_NEAR(layer.firing, 0.06, 0.015);
}

TEST(SpikingTrainer, ListsAreShorterFromEpochToEpoch) {
  SpikingTrainingSettings settings = settings_of(SpikingLoss::maximum, 7);
  settings.gradient_threshold = 0.9;
  settings.first_gradient_threshold = 0.5;
  settings.most_listed = 4;
  const TrainingResult result = Trainer(settings, recordings(), Machine::host(1)).train();
  double before = 1;
  for (const EpochResult& epoch : result.epochs) {
    EXPECT_LE(epoch.activity[0].listed, before * 1.1);
    before = epoch.activity[0].listed;
  }
  EXPECT_GT(result.epochs.back().activity[0].dropped, 0u);
  EXPECT_LE(result.epochs.back().activity[0].listed, 5.0 / 48);
  EXPECT_GT(*result.test_accuracy, 0.5);
}

TEST(SpikingTrainer, ActivityIsPenalised) {
  SpikingTrainingSettings settings = settings_of(SpikingLoss::maximum, 6);
  const auto firing = [&] {
    const TrainingResult result = Trainer(settings, recordings(), Machine::host(1)).train();
    EXPECT_GT(*result.test_accuracy, 0.6);
    return result.epochs.back().activity[0].firing;
  };
  const double without = firing();
  settings.activity_penalty = 100;
  settings.activity_cap = 0.02;
  EXPECT_LT(firing(), 0.75 * without);
}

TEST(SpikingTrainer, ABreakChangesNothing) {
  SpikingTrainingSettings settings = settings_of(SpikingLoss::maximum, 2);
  settings.recurrent = true;
  settings.learns_dynamics = true;
  settings.most_listed = 10;
  settings.gradient_threshold = 0.5;
  settings.lr_schedule.kind = graph::ScheduleKind::cosine;
  settings.clip_norm = 1;
  settings.optimizer = OptimizerKind::adamw;
  settings.weight_decay = 0.01;
  const test::TemporaryFolder folder;
  const std::string whole = folder.file("whole.safetensors"), broken = folder.file("broken.safetensors");
  const TrainingResult once = Trainer(settings, recordings(), Machine::host(2)).train({.checkpoint = whole});
  for (const uint64_t stop : {10u, 21u, 40u}) {
    if (stop == 10 && !test::is_full()) continue;
    Trainer first(settings, recordings(), Machine::host(2));
    first.train(
        {.checkpoint = broken, .progress = [&](const TrainingProgress& now) { return now.step < stop; }});
    EXPECT_EQ(first.step(), stop);
    Trainer second(settings, recordings(), Machine::host(2));
    second.resume(broken);
    EXPECT_EQ(second.step(), stop);
    const TrainingResult rest = second.train({.checkpoint = broken});
    EXPECT_EQ(*rest.test_loss, *once.test_loss);
    EXPECT_TRUE(content_of(broken) == content_of(whole)) << stop;
    std::filesystem::remove(broken);
  }
  const auto error = [&](const SpikingTrainingSettings& s, const RecordingSplit& r) {
    return error_of([&] { Trainer(s, r, Machine::host(2)).resume(whole); });
  };
  SpikingTrainingSettings other = settings;
  other.decay = 0.5;
  EXPECT_TRUE(says(error(other, recordings()), "other settings: its decay is 0.9, now it is 0.5"));
  EXPECT_TRUE(says(error(settings, small_randman(41)), "a checkpoint of other"));
}

TEST(SpikingTrainer, ContinuesFromEarlierCheckpoints) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("earlier.safetensors");
  for (const bool cosine : {false, true}) {
    SpikingTrainingSettings settings = settings_of(SpikingLoss::rate, 1);
    settings.clip_norm = 1;
    if (cosine) settings.lr_schedule.kind = graph::ScheduleKind::cosine;
    Trainer(settings, recordings(), Machine::host(2)).train({.checkpoint = path});
    test::rewrite_safetensors(path, [&](std::string text) {
      // The schedule was always named.
      text = cosine ? test::with_all(std::move(text), "\"lr_schedule\"", "\"schedule\"")
                    : test::with_all(std::move(text), "\"clip_norm\"",
                                     "\"schedule\":\"constant\",\"clip_norm\"");
      text = test::with_all(std::move(text), "\"clip_norm\"", "\"clip\"");
      return test::with_all(std::move(text), "\"lr\"", "\"rate\"");
    });
    Trainer again(settings, recordings(), Machine::host(2));
    again.resume(path);
    EXPECT_EQ(again.step(), 21U);
    settings.lr = 0.5;
    EXPECT_TRUE(says(error_of([&] { Trainer(settings, recordings(), Machine::host(2)).resume(path); }),
                     "its lr is 0.01, now it is 0.5"));
    std::filesystem::remove(path);
  }
}

TEST(SpikingTrainer, TilesLearnAsHosts) {
  SpikingTrainingSettings settings = settings_of(SpikingLoss::maximum, 1);
  settings.hidden = {24};
  settings.activity_penalty = 1;
  const RecordingSplit set = load_recordings(
      "randman", "", {.steps = 12, .randman = {.units = 8, .classes = 3, .samples = 40}, .seed = 2});
  const Machine machine = Machine::find("bow").with("tiles", 40);
  Trainer here(settings, set, Machine::host(1)), there(settings, set, machine);
  const TrainingResult on_host = here.train(), on_tiles = there.train();
  EXPECT_NEAR(on_tiles.epochs[0].loss, on_host.epochs[0].loss, 1e-4);
  EXPECT_NEAR(on_tiles.epochs[0].activity[0].firing, on_host.epochs[0].activity[0].firing, 1e-3);
  EXPECT_EQ(on_host.cycles, 0u);
  const auto cycles = static_cast<double>(there.steps_per_epoch() * on_tiles.step_cycles);
  EXPECT_NEAR(static_cast<double>(on_tiles.cycles), cycles, 0.01 * cycles);  // they depend on spikes
  EXPECT_GT(on_tiles.evaluation_cycles, 0u);
  EXPECT_EQ(there.traces(0).spikes, here.traces(0).spikes);
}

TEST(SpikingTrainer, CurrentsAreLearned) {
  // Which of four features is largest, and when does not matter.
  RecordingSplit split{.name = "currents"};
  for (Recordings* part : {&split.train, &split.test}) {
    *part = {.steps = 20, .units = 4, .classes = 4};
    base::RandomSequence random{base::RandomStream(part == &split.train ? 1 : 2)};
    for (uint32_t i = 0; i < 200; ++i) {
      part->labels.push_back(random.below(4));
      for (uint32_t t = 0; t < 20; ++t)
        for (uint32_t f = 0; f < 4; ++f)
          part->currents.push_back(static_cast<float>(random.below(128) + (f == part->labels[i] ? 127 : 0)) /
                                   255);
    }
  }
  SpikingTrainingSettings settings = settings_of(SpikingLoss::mean, 10);
  settings.recurrent = true;
  Trainer trainer(settings, split, Machine::host(1));
  EXPECT_EQ(trainer.parameters(), 4u * 48 + 48 * 48 + 48 * 4 + 3 + 1);
  EXPECT_GE(*trainer.train().test_accuracy, 0.95);
  const SpikingTraces traces = trainer.traces(0);
  EXPECT_THAT(traces.sizes, ElementsAre(32, 48));
  EXPECT_EQ(traces.potentials.size(), 20u * 4);
  EXPECT_EQ(traces.label, split.test.labels[0]);
  for (size_t layer = 0; layer < 2; ++layer)
    for (const SpikeEvent& event : traces.spikes[layer]) EXPECT_LT(event.unit, traces.sizes[layer]);
  split.test.currents[7] = 1.5;
  EXPECT_TRUE(
      says(error_of([&] { Trainer(settings, split, Machine::host(1)); }), "recording 0 has the current 1.5"));
}

TEST(SpikingTrainer, RefusesImpossibleSettings) {
  const auto error = [](auto change) {
    SpikingTrainingSettings settings = settings_of(SpikingLoss::last, 1);
    change(settings);
    return error_of<UsageError>([&] { Trainer(settings, recordings(), Machine::host(1)); });
  };
  using S = SpikingTrainingSettings;
  EXPECT_TRUE(says(error([](S& s) { s.hidden = {}; }), "no hidden layers"));
  EXPECT_TRUE(says(error([](S& s) { s.hidden = {0}; }), "the size of a layer is 0"));
  EXPECT_TRUE(
      says(error([](S& s) { s.decay = 1.5; }), "the decay of potentials is 1.5; it must be from 0 to 1"));
  EXPECT_TRUE(says(error([](S& s) { s.lr = 0; }), "the learning rate is 0"));
  EXPECT_TRUE(says(error([](S& s) { s.batch = 433; }), "a batch of 433 is larger than the 432 recordings"));
  EXPECT_TRUE(says(error([](S& s) { s.validation = 0.0001; }), "0 recordings for validation"));
  EXPECT_TRUE(
      says(error([](S& s) { s.gradient_threshold = 1; }), "the gradient threshold is 1; it must be below"));
  EXPECT_TRUE(says(error([](S& s) { s.activity_penalty = -1; }), "the penalty for activity is -1"));
  EXPECT_TRUE(says(error([](S& s) { s.initial_firing = 0; }), "fire initially is 0"));
  EXPECT_TRUE(says(error([](S& s) { s.neuron.surrogate.slope = 0; }), "slope 0"));
  EXPECT_TRUE(
      says(error_of([] { spiking_loss_named("l1"); }), "unknown loss 'l1' (choose from spikes, last"));
}

TEST(SpikingTrainer, DivergenceIsAnError) {
  SpikingTrainingSettings settings = settings_of(SpikingLoss::last, 2);
  settings.optimizer = OptimizerKind::sgd;
  settings.lr = 3e38;
  settings.loss = SpikingLoss::mean;
  EXPECT_TRUE(says(error_of([&] { Trainer(settings, recordings(), Machine::host(1)).train(); }),
                   "training diverged"));
}

TEST(SpikingSchedules, HalveTheirDistance) {
  SpikingTrainingSettings s;
  s.hidden = {100, 40};
  EXPECT_EQ(s.gradient_threshold_of(3), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(s.most_listed_of(3), ~0u);
  s.gradient_threshold = 0.9;
  EXPECT_DOUBLE_EQ(s.gradient_threshold_of(0), -100);
  EXPECT_DOUBLE_EQ(s.gradient_threshold_of(1), 0.9 - 100.9 / 2);
  EXPECT_NEAR(s.gradient_threshold_of(30), 0.9, 1e-6);
  s.most_listed = 20;
  EXPECT_EQ(s.most_listed_of(0), 100u);
  EXPECT_EQ(s.most_listed_of(1), 60u);
  EXPECT_EQ(s.most_listed_of(20), 20u);
  s.lr = 0.5;
  EXPECT_DOUBLE_EQ(s.lr_of(70, 100), 0.5);
  s.lr_schedule.kind = graph::ScheduleKind::cosine;
  EXPECT_DOUBLE_EQ(s.lr_of(0, 100), 0.5);
  EXPECT_DOUBLE_EQ(s.lr_of(50, 100), 0.25);
}

}  // namespace

namespace train {
namespace {

TEST(Digits, AddUpToTheCurrents) {
  Recordings currents{.steps = 2, .units = 3, .classes = 1, .labels = {0}};
  currents.currents = {0, 1, 77.0F / 255, 0.5F, 128.0F / 255, 1.0F / 255};
  const Recordings spikes = digits_of(currents);
  EXPECT_EQ(spikes.units, 24u);
  std::vector<float> sums(6);
  for (const SpikeEvent& event : spikes.spikes(0))
    sums[event.step * 3 + event.unit / kDigits] += worth_of(event.unit % kDigits);
  for (size_t i = 0; i < sums.size(); ++i)
    EXPECT_NEAR(sums[i], currents.currents[i], i == 3 ? 0.501 / 255 : 1e-6);
  EXPECT_TRUE(std::ranges::is_sorted(spikes.spikes(0)));
}

/// A network of fixed spikes, in float64: its results beside their definitions.
class LossTest : public testing::TestWithParam<SpikingLoss> {
 protected:
  static constexpr SpikingData kData{.steps = 15, .units = 6, .classes = 4, .capacity = 6};
  static constexpr uint32_t kBatch = 3, kHidden = 20;

  LossTest() {
    settings_.hidden = {kHidden};
    settings_.loss = GetParam();
    settings_.batch = kBatch;
    settings_.optimizer = OptimizerKind::sgd;
    base::RandomSequence random{base::RandomStream(5)};
    for (uint32_t list = 0; list < kData.steps * kBatch; ++list) {
      std::vector<double> fired;
      for (uint32_t i = 0; i < kData.units; ++i)
        if (random.below(3) == 0) fired.push_back(i);
      inputs_[kSpikeNum].insert(inputs_[kSpikeNum].end(), 2, static_cast<double>(fired.size()));
      fired.resize(kData.capacity);
      inputs_[kSpikeIds].insert(inputs_[kSpikeIds].end(), fired.begin(), fired.end());
    }
    for (const uint32_t label : labels_) {
      inputs_[kLabels].push_back(label);
      for (uint32_t c = 0; c < kData.classes; ++c) inputs_[kTargetRates].push_back(c == label ? 0.8 : 0.2);
    }
    inputs_[kGradientThreshold] = {-std::numeric_limits<float>::infinity()};
    inputs_[kMostListed] = {double{~uint32_t{0}}};
    inputs_[kListStep] = {0};
    inputs_["lr"] = {1};
  }

  /// Runs a graph, which changes the state if it trains.
  graph::WideArrays run(const graph::Graph& graph) {
    if (state_.empty())
      for (const auto& [name, values] : initial_state(graph)) {
        state_[name] = {values.begin(), values.end()};
        for (double& value : state_[name]) value *= 2;  // so that neurons fire
      }
    graph::WideArrays taken = inputs_;
    std::erase_if(taken, [&](const auto& array) { return !graph.contains(array.first); });
    return evaluate(graph, taken, state_);
  }
  graph::WideArrays run() { return run(spiking_evaluation_graph(settings_, kData, true)); }

  /// The loss of the values that are read from the last layer.
  double definition(const std::vector<double>& logits) const {
    double loss = 0;
    for (uint32_t b = 0; b < kBatch; ++b) {
      const double* row = &logits[size_t{b} * kData.classes];
      double sum = 0, squares = 0;
      for (uint32_t c = 0; c < kData.classes; ++c) {
        sum += std::exp(row[c]);
        squares += std::pow(row[c] / kData.steps - (c == labels_[b] ? 0.8 : 0.2), 2) / kData.classes;
      }
      loss += GetParam() == SpikingLoss::rate ? squares : std::log(sum) - row[labels_[b]];
    }
    return loss / kBatch;
  }

  /// The number of steps in which the neurons of a layer fired [batch, neurons].
  std::vector<double> counts_of(const graph::WideArrays& found, size_t layer, uint32_t neurons) const {
    const auto &ids = found.at(value_name(layer, "ids")), &num = found.at(value_name(layer, "num"));
    std::vector<double> counts(size_t{kBatch} * neurons);
    for (size_t list = 0; list < num.size() / 2; ++list)
      for (size_t i = 0; i < num[2 * list]; ++i)
        counts[list % kBatch * neurons + static_cast<size_t>(ids[list * neurons + i])] += 1;
    return counts;
  }

  SpikingTrainingSettings settings_;
  graph::WideArrays inputs_, state_;
  const std::vector<uint32_t> labels_ = {1, 3, 0};
};

TEST_P(LossTest, IsThatOfItsDefinition) {
  const graph::WideArrays found = run();
  const std::vector<double>& logits = found.at(kLogits);
  std::vector<double> expected;
  if (output_spikes(settings_)) {
    expected = counts_of(found, 1, kData.classes);
  } else {
    const std::vector<double>& u = found.at(kPotentials);
    const size_t row = size_t{kBatch} * kData.classes;
    for (size_t i = 0; i < row; ++i) {
      double most = u[i], sum = 0;
      for (size_t t = 0; t < kData.steps; ++t) {
        most = std::max(most, u[t * row + i]);
        sum += u[t * row + i];
      }
      expected.push_back(GetParam() == SpikingLoss::last      ? u[(kData.steps - 1) * row + i]
                         : GetParam() == SpikingLoss::maximum ? most
                                                              : sum / kData.steps);
    }
  }
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(logits[i], expected[i], 1e-9) << i;
  EXPECT_GT(*std::ranges::max_element(logits), 0);
  EXPECT_NEAR(run(spiking_training_graph(settings_, kData)).at(kLoss)[0], definition(logits), 1e-6);
}

TEST_P(LossTest, PenaltiesAreThoseOfRates) {
  double penalty = 0;
  const graph::WideArrays found = run();
  for (const double count : counts_of(found, 0, kHidden))
    penalty += 3 * std::pow(std::max(0.0, count / kData.steps - 0.1), 2) / (kBatch * kHidden);
  settings_.activity_penalty = 3;
  settings_.activity_cap = 0.1;
  EXPECT_GT(penalty, 0.01);
  EXPECT_NEAR(run(spiking_training_graph(settings_, kData)).at(kLoss)[0],
              definition(found.at(kLogits)) + penalty, 1e-6);
}

/// Gradients of the readout's weights; gradients of spikes are surrogates.
class SmoothLossTest : public LossTest {};

TEST_P(SmoothLossTest, GradientsAreThoseOfTheLoss) {
  (void)run();
  const graph::WideArrays before = state_;
  (void)run(spiking_training_graph(settings_, kData));
  const std::string name = value_name(1, "weight");
  const graph::WideArrays after = std::exchange(state_, before);
  for (size_t i = 0; i < before.at(name).size(); i += 7) {
    const auto loss_at = [&](double change) {
      state_[name][i] = before.at(name)[i] + change;
      return definition(run().at(kLogits));
    };
    const double slope = (loss_at(1e-3) - loss_at(-1e-3)) / 2e-3;
    loss_at(0);
    EXPECT_NEAR(before.at(name)[i] - after.at(name)[i], slope, 1e-4 + 1e-3 * std::abs(slope)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(, LossTest,
                         testing::Values(SpikingLoss::spikes, SpikingLoss::last, SpikingLoss::maximum,
                                         SpikingLoss::mean, SpikingLoss::rate),
                         [](const auto& of) { return std::string(name_of(of.param)); });
INSTANTIATE_TEST_SUITE_P(, SmoothLossTest,
                         testing::Values(SpikingLoss::last, SpikingLoss::maximum, SpikingLoss::mean),
                         [](const auto& of) { return std::string(name_of(of.param)); });

// Units 8f to 8f + 7 that all fire are a current of 1.
TEST(Digits, ShareTheWeightsOfTheirCurrent) {
  SpikingTrainingSettings settings;
  settings.hidden = {5};
  settings.loss = SpikingLoss::last;
  settings.batch = 1;
  const auto potentials = [&](uint32_t units, bool has_digits) {
    const SpikingData data{
        .steps = 1, .units = units, .classes = 3, .capacity = units, .has_digits = has_digits};
    const graph::Graph graph = spiking_evaluation_graph(settings, data);
    graph::WideArrays state, inputs = {{kSpikeNum, {double(units), double(units)}},
                                       {kGradientThreshold, {0}},
                                       {kMostListed, {1000}},
                                       {kListStep, {0}}};
    for (uint32_t i = 0; i < units; ++i) inputs[kSpikeIds].push_back(i);
    for (const auto& [name, values] : initial_state(graph)) {
      EXPECT_EQ(values.size(), name == value_name(0, "weight") ? 2u * 5 : 5u * 3) << name;
      state[name] = std::vector<double>(values.size(), name == value_name(0, "weight") ? 0.75 : 1);
    }
    return evaluate(graph, inputs, state).at(kLogits);
  };
  const std::vector<double> digits = potentials(2 * kDigits, true), currents = potentials(2, false);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(digits[i], currents[i], 1e-5);
  EXPECT_GT(currents[0], 0);
}

}  // namespace
}  // namespace train
}  // namespace tessera
