#include "train/spiking/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/random.h"
#include "train/network.h"
#include "train/settings.h"

namespace tessera::train {
namespace {

constexpr uint32_t kWeightStream = 0x73706B00;
/// Of weights among neurons of a layer, times √neurons.
constexpr double kRecurrentScale = 0.2;
/// Decays and thresholds learn more slowly.
constexpr double kDynamicsRate = 0.1;

std::string gradient_of(const std::string& name) { return name + ".gradient"; }

double initial_dynamic(const SpikingTrainingSettings& s, const SpikingLayer& layer, std::string_view name) {
  if (name == "decay") return layer.neuron.spikes ? s.decay : s.readout_decay;
  return name == "current_decay" ? s.current_decay : s.threshold;
}

model::Optimizer optimizer_of(const SpikingTrainingSettings& s) {
  if (s.optimizer == OptimizerKind::adam || s.optimizer == OptimizerKind::adamw)
    return model::Adam{.decay = s.weight_decay, .decoupled = s.optimizer == OptimizerKind::adamw};
  return model::Sgd{.momentum = s.optimizer == OptimizerKind::sgd ? 0 : s.momentum,
                    .decay = s.weight_decay,
                    .nesterov = s.optimizer == OptimizerKind::nesterov};
}

}  // namespace

std::vector<SpikingParameters::Parameter> SpikingParameters::parameters_of(
    const SpikingTrainingSettings& settings, const std::vector<SpikingLayer>& layers, bool digits) {
  std::vector<Parameter> all;
  for (size_t i = 0; i < layers.size(); ++i)
    for (const SpikingParameter& p : tessera::parameters_of(layers[i])) {
      const bool is_weight = p.name == "weight" || p.name == "recurrent";
      Parameter parameter{.name = fmt::format("layer{}.{}", i + 1, p.name),
                          .layer = i,
                          .rows = p.rows,
                          .cols = p.cols,
                          .is_weight = is_weight,
                          .learned = is_weight || settings.learns_dynamics,
                          .has_digits = digits && i == 0 && p.name == "weight"};
      if (parameter.has_digits) parameter.rows /= kDigits;
      parameter.value.resize(size_t{parameter.rows} * parameter.cols);
      if (is_weight) {
        base::RandomStream(settings.seed, static_cast<uint32_t>(all.size()), kWeightStream)
            .fill_normal(parameter.value);
        const double scale = (p.name == "recurrent" ? kRecurrentScale : 1) / std::sqrt(parameter.rows);
        for (float& w : parameter.value) w = static_cast<float>(w * scale);
      } else {
        std::ranges::fill(parameter.value, static_cast<float>(initial_dynamic(settings, layers[i], p.name)));
      }
      if (parameter.learned) parameter.gradient.resize(p.elements());
      all.push_back(std::move(parameter));
    }
  return all;
}

model::Graph SpikingParameters::graph_of(const SpikingTrainingSettings& settings,
                                         const std::vector<Parameter>& all) {
  model::Graph graph;
  std::optional<model::Value> loss;
  std::vector<std::pair<model::Value, double>> rates;
  for (const Parameter& p : all) {
    if (!p.learned) continue;
    const model::Value value = graph.parameter(p.name, {p.rows, p.cols});
    const model::Value term = sum(value * graph.input(gradient_of(p.name), {p.rows, p.cols}));
    loss = loss ? *loss + term : term;
    if (!p.is_weight) rates.emplace_back(value, kDynamicsRate);
  }
  add_training(*loss,
               {.optimizer = optimizer_of(settings), .clip_norm = settings.clip, .rates = std::move(rates)});
  return graph;
}

SpikingParameters::SpikingParameters(const SpikingTrainingSettings& settings,
                                     const std::vector<SpikingLayer>& layers, bool digits, uint32_t threads)
    : parameters_(parameters_of(settings, layers, digits)),
      session_(graph_of(settings, parameters_), Machine::host(threads), {.threads = threads}) {
  for (Parameter& p : parameters_) {
    if (p.has_digits) expand(p.value, p.cols, p.digits);
    values_.push_back(p.as_taken());
    if (p.learned) {
      gradient_pointers_.push_back(p.gradient.data());
      session_.set(p.name, p.value);
    }
  }
}

uint64_t SpikingParameters::count() const {
  uint64_t count = 0;
  for (const Parameter& p : parameters_) count += p.value.size();
  return count;
}

void SpikingParameters::scale(size_t layer, double factor) {
  for (Parameter& p : parameters_) {
    if (p.layer != layer || !p.name.ends_with(".weight")) continue;
    for (float& w : p.value) w = static_cast<float>(w * factor);
    session_.set(p.name, p.value);
  }
  load();
}

void SpikingParameters::load() {
  for (Parameter& p : parameters_) {
    if (!p.learned) continue;
    const std::vector<float> now = session_.get(p.name);
    std::ranges::copy(now, p.value.begin());
    if (p.has_digits) expand(p.value, p.cols, p.digits);
  }
}

void SpikingParameters::update(uint64_t step, double rate) {
  auto number = static_cast<uint32_t>(step + 1);
  auto now = static_cast<float>(rate);
  std::vector<model::Tensor> arrays = {{"rate", &now}, {"step", &number}};
  for (Parameter& p : parameters_) {
    if (!p.learned) continue;
    if (p.has_digits) reduce(p.gradient, p.cols, p.reduced);
    arrays.push_back({gradient_of(p.name), p.has_digits ? p.reduced.data() : p.gradient.data()});
  }
  session_.run(taken_by(session_.graph(), std::move(arrays)));
  load();
}

}  // namespace tessera::train
