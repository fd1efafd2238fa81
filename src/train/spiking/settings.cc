#include "train/spiking/settings.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/names.h"
#include "data/samples.h"
#include "graph/transforms/updates.h"
#include "train/settings.h"

namespace tessera {
namespace {

constexpr base::Names<SpikingLoss, 5> kLosses{"loss", {"spikes", "last", "maximum", "mean", "rate"}};
constexpr std::array<std::string_view, 5> kResets = {"none", "zero", "subtract", "late-zero",
                                                     "late-subtract"};
constexpr std::array<std::string_view, 3> kResetGradients = {"detached", "gated", "attached"};

/// Halves the distance from the first to the last with each epoch.
double halving(double first, double last, uint32_t epoch) {
  return last + (first - last) * std::pow(0.5, epoch);
}

}  // namespace

std::string_view name_of(Reset reset) { return kResets.at(static_cast<size_t>(reset)); }
std::string_view name_of(ResetGradient gradient) { return kResetGradients.at(static_cast<size_t>(gradient)); }
std::string_view name_of(SpikingLoss loss) { return kLosses.of(loss); }
SpikingLoss spiking_loss_named(std::string_view name) { return kLosses.named(name); }

SpikingTrainingSettings usual_settings(std::string_view dataset) {
  SpikingTrainingSettings s;
  if (dataset.starts_with("braille")) {
    // Long sequences through a recurrent layer: narrow surrogates and clipping keep gradients small.
    s.hidden = {200};
    s.recurrent = true;
    s.neuron.surrogate.slope = 20;
    s.readout_decay = 0.99;
    s.initial_firing = 0.05;
    s.loss = SpikingLoss::last;
    s.lr = 0.003;
    s.lr_schedule.kind = graph::ScheduleKind::cosine;
    s.clip_norm = 1;
    s.batch = 32;
    s.epochs = 40;
    return s;
  }
  s.neuron.synaptic = true;
  s.current_decay = 0.9;
  s.decay = 0.95;
  s.epochs = 10;
  if (dataset == "randman") {
    s.lr = 0.01;
    return s;
  }
  s.hidden = {256};
  s.readout_decay = 0.95;
  s.loss = SpikingLoss::mean;
  return s;
}

double SpikingTrainingSettings::gradient_threshold_of(uint32_t epoch) const {
  if (!std::isfinite(gradient_threshold)) return gradient_threshold;
  return halving(first_gradient_threshold, gradient_threshold, epoch);
}

uint32_t SpikingTrainingSettings::most_listed_of(uint32_t epoch) const {
  if (most_listed == 0) return ~uint32_t{0};
  const double all = *std::ranges::max_element(hidden);
  return static_cast<uint32_t>(std::lround(halving(std::max<double>(all, most_listed), most_listed, epoch)));
}

namespace train {

void check(const SpikingTrainingSettings& s) {
  constexpr uint32_t kMostNeurons = 1U << 16;
  constexpr graph::SettingRange kShare{[](double x) { return x >= 0 && x <= 1; }, "from 0 to 1"};
  if (s.hidden.empty())
    throw UsageError("a spiking network has no hidden layers; give the size of at least one");
  for (const uint32_t size : s.hidden)
    graph::require_setting(size >= 1 && size <= kMostNeurons, "the size of a layer", size,
                           fmt::format("from 1 to {}", kMostNeurons));
  graph::require_setting(kShare, "the decay of potentials", s.decay);
  graph::require_setting(kShare, "the decay of currents", s.current_decay);
  graph::require_setting(kShare, "the decay of the readout", s.readout_decay);
  graph::require_setting(graph::kPositive, "the threshold", s.threshold);
  graph::require_setting(graph::kInside, "the fraction of neurons that fire initially", s.initial_firing);
  graph::require_setting(graph::kFromZero, "the penalty for activity", s.activity_penalty);
  graph::require_setting(kShare, "the cap of activity", s.activity_cap);
  graph::require_setting(s.gradient_threshold < s.threshold, "the gradient threshold", s.gradient_threshold,
                         fmt::format("below the threshold, {}", s.threshold));
  graph::require_setting(
      std::isfinite(s.first_gradient_threshold) && s.first_gradient_threshold < s.threshold,
      "the first gradient threshold", s.first_gradient_threshold,
      fmt::format("below the threshold, {}", s.threshold));
  check_learning(s, "recordings");
}

void check(const SpikingTrainingSettings& s, const RecordingSplit& r) {
  check(s);
  const Recordings &train = r.train, &test = r.test;
  if (train.steps != test.steps || train.units != test.units || train.are_currents() != test.are_currents())
    throw UsageError(
        fmt::format("{}: test recordings have {} steps of {} units, training recordings {} of {}", r.name,
                    test.steps, test.units, train.steps, train.units));
  check_samples(s, train.count(), test.count(), "recordings");
  if (train.classes < 2)
    throw UsageError(
        fmt::format("{}: recordings of {} classes; at least 2 are needed", r.name, train.classes));
}

bool output_spikes(const SpikingTrainingSettings& s) {
  return s.loss == SpikingLoss::spikes || s.loss == SpikingLoss::rate;
}

std::vector<SpikingLayer> layers_of(const SpikingTrainingSettings& s, uint32_t inputs, uint32_t classes) {
  std::vector<SpikingLayer> layers;
  for (const uint32_t neurons : s.hidden)
    layers.push_back({.inputs = layers.empty() ? inputs : layers.back().neurons,
                      .neurons = neurons,
                      .neuron = s.neuron,
                      .recurrent = s.recurrent,
                      .delay = layers.empty() ? 0 : s.delay});
  layers.push_back(
      {.inputs = layers.back().neurons, .neurons = classes, .neuron = s.neuron, .delay = s.delay});
  if (!output_spikes(s)) layers.back().neuron = {.spikes = false};
  return layers;
}

nlohmann::ordered_json json_of(const SpikingTrainingSettings& s) {
  const Neuron& n = s.neuron;
  nlohmann::ordered_json json = {{"hidden", s.hidden},
                                 {"recurrent", s.recurrent},
                                 {"delay", s.delay},
                                 {"decay", s.decay},
                                 {"threshold", s.threshold},
                                 {"at_threshold", n.fires_at_threshold},
                                 {"gain", n.gain},
                                 {"reset", name_of(n.reset)},
                                 {"reset_gradient", name_of(n.reset_gradient)},
                                 {"surrogate", name_of(n.surrogate.family)},
                                 {"slope", n.surrogate.slope},
                                 {"surrogate_scale", n.surrogate.scale},
                                 {"mask", n.mask == GradientMask::above ? "above" : "window"}};
  json["current_decay"] =
      n.synaptic ? nlohmann::ordered_json(s.current_decay) : nlohmann::ordered_json(nullptr);
  if (n.adaptive)
    json.update({{"adaptation_decay", n.adaptation_decay}, {"adaptation_strength", n.adaptation_strength}});
  if (!output_spikes(s)) json["readout_decay"] = s.readout_decay;
  json.update({{"learn_dynamics", s.learns_dynamics},
               {"initial_firing", s.initial_firing},
               {"loss", name_of(s.loss)},
               {"gradient_threshold", s.gradient_threshold}});  // −∞ is null in JSON
  if (s.activity_penalty > 0)
    json.update({{"activity_penalty", s.activity_penalty}, {"activity_cap", s.activity_cap}});
  if (std::isfinite(s.gradient_threshold)) json["first_gradient_threshold"] = s.first_gradient_threshold;
  json["most_listed"] =
      s.most_listed == 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(s.most_listed);
  add_optimizer(json, s);
  json.update({{"batch", s.batch}, {"epochs", s.epochs}, {"seed", s.seed}, {"validation", s.validation}});
  return json;
}

}  // namespace train
}  // namespace tessera
