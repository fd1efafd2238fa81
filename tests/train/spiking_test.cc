// Spiking networks on small random manifolds: what is learned, what gradients are, and that breaks change
// nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/training.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>

#include "base/random.h"
#include "data/events/binning.h"
#include "io/files.h"
#include "support/error_of.h"
#include "train/spiking/digits.h"
#include "train/spiking/loss.h"
#include "train/spiking/penalty.h"
#include "train/spiking/settings.h"

namespace tessera {
namespace {

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
  s.rate = 0.01;
  s.batch = 20;
  s.epochs = epochs;
  s.seed = 3;
  return s;
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class SpikingTrainerTest : public testing::TestWithParam<SpikingLoss> {};

TEST_P(SpikingTrainerTest, Learns) {
  SpikingTrainer trainer(settings_of(GetParam(), 8), recordings(), 1);
  EXPECT_EQ(trainer.training_recordings(), 432u);
  EXPECT_EQ(trainer.validation_recordings(), 48u);
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
  settings.rate = 1e-9;
  settings.initial_firing = 0.06;
  const TrainingResult result = SpikingTrainer(settings, recordings(), 1).train();
  for (const SpikingActivity& layer : result.epochs[0].activity) EXPECT_NEAR(layer.firing, 0.06, 0.015);
}

TEST(SpikingTrainer, ListsAreShorterFromEpochToEpoch) {
  SpikingTrainingSettings settings = settings_of(SpikingLoss::maximum, 7);
  settings.gradient_threshold = 0.9;
  settings.first_gradient_threshold = 0.5;
  settings.most_listed = 4;
  const TrainingResult result = SpikingTrainer(settings, recordings(), 1).train();
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
    const TrainingResult result = SpikingTrainer(settings, recordings(), 1).train();
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
  settings.cosine = true;
  settings.clip = 1;
  settings.optimizer = OptimizerKind::adamw;
  settings.weight_decay = 0.01;
  const test::TemporaryFolder folder;
  const std::string whole = folder.file("whole.safetensors"), broken = folder.file("broken.safetensors");
  const TrainingResult once = SpikingTrainer(settings, recordings(), 2).train({.checkpoint = whole});
  for (const uint64_t stop : {10u, 21u, 40u}) {
    SpikingTrainer first(settings, recordings(), 2);
    first.train(
        {.checkpoint = broken, .progress = [&](const TrainingProgress& now) { return now.step < stop; }});
    EXPECT_EQ(first.step(), stop);
    SpikingTrainer second(settings, recordings(), 2);
    second.resume(broken);
    EXPECT_EQ(second.step(), stop);
    const TrainingResult rest = second.train({.checkpoint = broken});
    EXPECT_EQ(*rest.test_loss, *once.test_loss);
    EXPECT_TRUE(contents(broken) == contents(whole)) << stop;
    std::filesystem::remove(broken);
  }
  const auto error = [&](const SpikingTrainingSettings& s, const RecordingSplit& r) {
    return error_of([&] { SpikingTrainer(s, r, 2).resume(whole); });
  };
  SpikingTrainingSettings other = settings;
  other.decay = 0.5;
  EXPECT_TRUE(says(error(other, recordings()), "other settings: its decay is 0.9, now it is 0.5"));
  EXPECT_TRUE(says(error(settings, small_randman(41)), "a checkpoint of other"));
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
  SpikingTrainer trainer(settings, split, 1);
  EXPECT_EQ(trainer.parameters(), 4u * 48 + 48 * 48 + 48 * 4 + 3 + 1);
  EXPECT_GE(*trainer.train().test_accuracy, 0.95);
  const SpikingTraces traces = trainer.traces(0);
  EXPECT_THAT(traces.sizes, ElementsAre(32, 48));
  EXPECT_EQ(traces.potentials.size(), 20u * 4);
  EXPECT_EQ(traces.label, split.test.labels[0]);
  for (size_t layer = 0; layer < 2; ++layer)
    for (const SpikeEvent& event : traces.spikes[layer]) EXPECT_LT(event.unit, traces.sizes[layer]);
  split.test.currents[7] = 1.5;
  EXPECT_TRUE(says(error_of([&] { SpikingTrainer(settings, split, 1); }), "recording 0 has the current 1.5"));
}

TEST(SpikingTrainer, RefusesImpossibleSettings) {
  const auto error = [](auto change) {
    SpikingTrainingSettings settings = settings_of(SpikingLoss::last, 1);
    change(settings);
    return error_of<UsageError>([&] { SpikingTrainer(settings, recordings(), 1); });
  };
  using S = SpikingTrainingSettings;
  EXPECT_TRUE(says(error([](S& s) { s.hidden = {}; }), "no hidden layers"));
  EXPECT_TRUE(says(error([](S& s) { s.hidden = {0}; }), "the size of a layer is 0"));
  EXPECT_TRUE(
      says(error([](S& s) { s.decay = 1.5; }), "the decay of potentials is 1.5; it must be from 0 to 1"));
  EXPECT_TRUE(says(error([](S& s) { s.rate = 0; }), "the learning rate is 0"));
  EXPECT_TRUE(says(error([](S& s) { s.batch = 433; }), "a batch of 433 is larger than the 432 recordings"));
  EXPECT_TRUE(says(error([](S& s) { s.validation = 0.0001; }), "0 recordings for validation"));
  EXPECT_TRUE(
      says(error([](S& s) { s.gradient_threshold = 1; }), "the gradient threshold is 1; it must be below"));
  EXPECT_TRUE(says(error([](S& s) { s.activity_penalty = -1; }), "the penalty for activity is -1"));
  EXPECT_TRUE(says(error([](S& s) { s.initial_firing = 0; }), "fire initially is 0"));
  EXPECT_TRUE(says(error([](S& s) { s.neuron.surrogate.slope = 0; }), "slope 0"));
  EXPECT_TRUE(
      says(error_of([] { spiking_loss_named("l1"); }), "the loss 'l1' is unknown; there are spikes, last"));
}

TEST(SpikingTrainer, DivergenceIsAnError) {
  SpikingTrainingSettings settings = settings_of(SpikingLoss::last, 2);
  settings.optimizer = OptimizerKind::sgd;
  settings.rate = 3e38;
  settings.loss = SpikingLoss::mean;
  EXPECT_TRUE(
      says(error_of([&] { SpikingTrainer(settings, recordings(), 1).train(); }), "training diverged"));
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
  s.rate = 0.5;
  EXPECT_DOUBLE_EQ(s.rate_of(70, 100), 0.5);
  s.cosine = true;
  EXPECT_DOUBLE_EQ(s.rate_of(0, 100), 0.5);
  EXPECT_DOUBLE_EQ(s.rate_of(50, 100), 0.25);
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

TEST(Digits, WeightsAreTied) {
  const std::vector<float> weights = {1, -2, 255, 0.5F};
  std::vector<float> digits, back;
  expand(weights, 2, digits);
  ASSERT_EQ(digits.size(), 4u * kDigits);
  EXPECT_FLOAT_EQ(digits[0], 128.0F / 255);
  EXPECT_FLOAT_EQ(digits[2 * 7 + 1], -2.0F / 255);
  EXPECT_FLOAT_EQ(digits[2 * 15], 1);
  // The transpose of expand().
  std::vector<float> gradients(digits.size());
  base::RandomStream(1).fill_symmetric(gradients);
  reduce(gradients, 2, back);
  const double a = std::inner_product(gradients.begin(), gradients.end(), digits.begin(), 0.0),
               b = std::inner_product(back.begin(), back.end(), weights.begin(), 0.0);
  EXPECT_NEAR(a, b, 1e-4 * std::abs(a));
}

/// A network of fixed spikes: its loss is smooth in the readout's weights.
class LossTest : public testing::TestWithParam<SpikingLoss> {
 protected:
  static constexpr uint32_t kSteps = 15, kBatch = 3, kInputs = 6, kHidden = 20, kClasses = 4;

  LossTest()
      : settings_{.hidden = {kHidden}, .loss = GetParam()},
        layers_(layers_of(settings_, kInputs, kClasses)),
        network_(layers_, kSteps, kBatch, {.threads = 1}),
        output_(GetParam(), network_),
        ids_(size_t{kSteps} * kBatch * kInputs),
        num_(size_t{kSteps} * kBatch * 2) {
    base::RandomSequence random{base::RandomStream(5)};
    for (size_t list = 0; list < size_t{kSteps} * kBatch; ++list) {
      for (uint16_t i = 0; i < kInputs; ++i)
        if (random.below(3) == 0) ids_[list * kInputs + num_[2 * list]++] = i;
      num_[2 * list + 1] = num_[2 * list];
    }
    for (const SpikingLayer& layer : layers_)
      for (const SpikingParameter& p : parameters_of(layer)) {
        auto& values = values_.emplace_back(p.elements(), p.name == "decay" ? 0.9F : 1.0F);
        if (p.rows > 1) {
          base::RandomStream(6, static_cast<uint32_t>(values_.size())).fill_normal(values);
          for (float& w : values) w *= 0.7F;
          gradients_.emplace_back(p.elements());
        }
      }
  }

  double loss() {
    std::vector<const float*> parameters;
    for (const auto& value : values_) parameters.push_back(value.data());
    network_.forward({ids_.data(), num_.data(), kInputs}, parameters);
    output_.read(network_);
    return output_.evaluate(labels_).loss / kBatch;
  }

  SpikingTrainingSettings settings_;
  std::vector<SpikingLayer> layers_;
  SpikingNetwork network_;
  SpikingOutput output_;
  std::vector<uint16_t> ids_;
  std::vector<uint32_t> num_;
  std::vector<std::vector<float>> values_, gradients_;
  const std::vector<uint32_t> labels_ = {1, 3, 0};
};

// The penalty as a function of the numbers of spikes, by differences.
TEST_P(LossTest, PenaltiesAreThoseOfRates) {
  loss();
  ActivityPenalty penalty(3, 0.1, network_);
  const double value = penalty.evaluate(network_);
  const SpikeLists lists = network_.spikes(0);
  std::vector<double> counts(size_t{kBatch} * kHidden);
  for (size_t list = 0; list < size_t{kSteps} * kBatch; ++list)
    for (uint32_t i = 0; i < lists.num[2 * list]; ++i)
      counts[list % kBatch * kHidden + lists.ids[list * lists.capacity + i]] += 1;
  const auto of = [&] {
    double sum = 0;
    for (const double count : counts) sum += std::pow(std::max(0.0, count / kSteps - 0.1), 2);
    return 3 * sum / static_cast<double>(counts.size());
  };
  EXPECT_NEAR(value, of(), 1e-6);
  const std::vector<const float*> gradients = penalty.gradients(network_);
  ASSERT_EQ(gradients.size(), 1u);
  for (size_t list = 0; list < size_t{kSteps} * kBatch; list += 4)
    for (uint32_t i = 0; i < lists.num[2 * list + 1]; ++i) {
      double& count = counts[list % kBatch * kHidden + lists.ids[list * lists.capacity + i]];
      const double before = count, step = 1e-3;
      count = before + step;
      const double above = of();
      count = before - step;
      const double below = of();
      count = before;
      EXPECT_NEAR(gradients[0][list * lists.capacity + i], (above - below) / (2 * step), 1e-6);
    }
}

TEST_P(LossTest, GradientsAreThoseOfTheLoss) {
  loss();
  if (output_spikes(settings_)) {
    // Of the numbers of spikes, by differences of the loss as a function of them.
    const float* upstream = output_.gradient(network_, labels_);
    const SpikeLists lists = network_.spikes(1);
    std::vector<double> counts(size_t{kBatch} * kClasses);
    for (size_t i = 0; i < counts.size(); ++i) counts[i] = output_.logits()[i];
    const auto loss_of = [&](uint32_t b) {
      double sum = 0, most = *std::max_element(&counts[b * kClasses], &counts[b * kClasses] + kClasses),
             squares = 0;
      for (uint32_t c = 0; c < kClasses; ++c) {
        sum += std::exp(counts[b * kClasses + c] - most);
        squares += std::pow(counts[b * kClasses + c] / kSteps - (c == labels_[b] ? 0.8 : 0.2), 2) / kClasses;
      }
      return GetParam() == SpikingLoss::rate ? squares
                                             : std::log(sum) + most - counts[b * kClasses + labels_[b]];
    };
    double total = 0;
    for (uint32_t b = 0; b < kBatch; ++b) total += loss_of(b) / kBatch;
    EXPECT_NEAR(total, loss(), 1e-6);
    for (size_t list = 0; list < size_t{kSteps} * kBatch; ++list)
      for (uint32_t i = 0; i < lists.num[2 * list + 1]; ++i) {
        const auto b = static_cast<uint32_t>(list % kBatch);
        double& count = counts[b * kClasses + lists.ids[list * lists.capacity + i]];
        const double before = count, step = 1e-4;
        count = before + step;
        const double above = loss_of(b);
        count = before - step;
        const double below = loss_of(b);
        count = before;
        EXPECT_NEAR(upstream[list * lists.capacity + i], (above - below) / (2 * step) / kBatch, 1e-6);
      }
    return;
  }
  std::vector<const float*> parameters;
  std::vector<float*> gradients;
  for (const auto& value : values_) parameters.push_back(value.data());
  for (auto& gradient : gradients_) gradients.push_back(gradient.data());
  network_.gradients({ids_.data(), num_.data(), kInputs}, parameters, output_.gradient(network_, labels_),
                     gradients);
  std::vector<float>& readout = values_[3];
  ASSERT_EQ(readout.size(), size_t{kHidden} * kClasses);
  for (size_t i = 0; i < readout.size(); i += 7) {
    const float before = readout[i], step = 1e-2F;
    readout[i] = before + step;
    const double above = loss();
    readout[i] = before - step;
    const double below = loss();
    readout[i] = before;
    EXPECT_NEAR(gradients_[1][i], (above - below) / (2 * double{step}), 2e-3) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(, LossTest,
                         testing::Values(SpikingLoss::spikes, SpikingLoss::last, SpikingLoss::maximum,
                                         SpikingLoss::mean, SpikingLoss::rate),
                         [](const auto& of) { return std::string(name_of(of.param)); });

}  // namespace
}  // namespace train
}  // namespace tessera
