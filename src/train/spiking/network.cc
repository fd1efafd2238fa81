#include "train/spiking/network.h"

#include <fmt/format.h>
#include <tessera/gradients.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/random.h"
#include "train/network.h"
#include "train/spiking/digits.h"
#include "train/spiking/settings.h"

namespace tessera::train {
namespace {

using graph::Graph;
using graph::SpikingResults;
using graph::Value;

constexpr uint32_t kSpikingWeightStream = 0x73706B00;
/// Standard deviation of recurrent weights, times √neurons.
constexpr double kRecurrentScale = 0.2;
/// Decays and thresholds learn more slowly.
constexpr double kDynamicsRate = 0.1;

bool is_weight(const SpikingParameter& p) { return p.name == "weight" || p.name == "recurrent"; }

double initial_dynamic(const SpikingTrainingSettings& s, const SpikingLayer& layer, std::string_view name) {
  if (name == "decay") return layer.neuron.spikes ? s.decay : s.readout_decay;
  return name == "current_decay" ? s.current_decay : s.threshold;
}

/// The weights of digits, from those of currents.
Value weights_of_digits(Value weights) {
  const uint32_t rows = weights.type().rows(), cols = weights.type().cols();
  std::vector<Value> digits;
  for (uint32_t digit = 0; digit < kDigits; ++digit)
    digits.push_back(reshape(weights * worth_of(digit), {rows, 1, cols}));
  return reshape(concatenate(digits, 1), {rows * kDigits, cols});
}

/// A network in a graph.
class Network {
 public:
  Network(Graph& graph, const SpikingTrainingSettings& settings, const SpikingData& data)
      : graph_(graph),
        settings_(settings),
        data_(data),
        layers_(layers_of(settings, data.units, data.classes)) {
    for (size_t layer = 0; layer < layers_.size(); ++layer)
      for (const SpikingParameter& p : parameters_of(layers_[layer])) parameters_.push_back(add(layer, p));
    const auto scalar = [&](const char* name, Type type) { return graph.input(name, {}, type); };
    results_ =
        spiking(spike_input(graph, "in", data.steps, settings.batch, data.capacity), layers_, parameters_,
                {.learns_dynamics = settings.learns_dynamics,
                 .gradient_threshold = scalar(kGradientThreshold, Type::f32),
                 .most_listed = scalar(kMostListed, Type::u32),
                 .step = scalar(kListStep, Type::u32),
                 .seed = settings.seed,
                 .expected_input_activity = data.activity});
    for (size_t layer = 0; layer + 1 < layers_.size(); ++layer) {
      graph.output(value_name(layer, "num"), results_.spikes[layer].num);
      graph.output(value_name(layer, "dropped"), results_.dropped[layer]);
    }
  }

  const SpikingResults& results() const { return results_; }
  const std::vector<graph::ParameterGroup>& groups() const { return groups_; }

  /// Numbers of spikes or potentials [batch, classes].
  Value logits() const {
    switch (settings_.loss) {
      case SpikingLoss::last: return readout(*results_.potentials, settings_.batch, graph::Readout::last);
      case SpikingLoss::maximum:
        return readout(*results_.potentials, settings_.batch, graph::Readout::maximum);
      case SpikingLoss::mean: return readout(*results_.potentials, settings_.batch, graph::Readout::mean);
      case SpikingLoss::spikes:
      case SpikingLoss::rate: break;
    }
    return spike_counts(results_.spikes.back(), data_.classes);
  }

  Value loss(Value logits) const {
    const double per_step = 1.0 / data_.steps;
    Value loss = settings_.loss == SpikingLoss::rate
                     ? mean_squared_error(logits * per_step,
                                          graph_.input(kTargetRates, {settings_.batch, data_.classes}))
                     : cross_entropy(logits, graph_.input(kLabels, {settings_.batch}, Type::u32));
    if (settings_.activity_penalty == 0) return loss;
    for (size_t layer = 0; layer + 1 < layers_.size(); ++layer) {
      const Value rates = spike_counts(results_.spikes[layer], layers_[layer].neurons) * per_step;
      loss = loss + mean(square(relu(rates + -settings_.activity_cap))) * settings_.activity_penalty;
    }
    return loss;
  }

 private:
  /// Adds a parameter in the shape that the layer takes.
  Value add(size_t layer, const SpikingParameter& p) {
    const bool has_digits = data_.has_digits && layer == 0 && p.name == "weight";
    const uint32_t rows = has_digits ? p.rows / kDigits : p.rows;
    const std::string name = value_name(layer, p.name);
    std::vector<float> values(size_t{rows} * p.cols);
    if (is_weight(p)) {
      base::RandomStream(settings_.seed, static_cast<uint32_t>(parameters_.size()), kSpikingWeightStream)
          .fill_normal(values);
      const double scale = (p.name == "recurrent" ? kRecurrentScale : 1) / std::sqrt(rows);
      for (float& w : values) w = static_cast<float>(w * scale);
      const Value weights = graph_.parameter(name, {rows, p.cols}, graph::Initial::from(std::move(values)));
      return has_digits ? weights_of_digits(weights) : weights;
    }
    std::ranges::fill(values, static_cast<float>(initial_dynamic(settings_, layers_[layer], p.name)));
    if (!settings_.learns_dynamics) return graph_.constant(name, {rows, p.cols}, std::move(values));
    const Value value = graph_.parameter(name, {rows, p.cols}, graph::Initial::from(std::move(values)));
    groups_.push_back({.parameters = {value}, .lr_scale = kDynamicsRate});
    return value;
  }

  Graph& graph_;
  const SpikingTrainingSettings& settings_;
  const SpikingData& data_;
  std::vector<SpikingLayer> layers_;
  std::vector<Value> parameters_;
  std::vector<graph::ParameterGroup> groups_;
  SpikingResults results_;
};

}  // namespace

std::string value_name(size_t layer, std::string_view what) {
  return fmt::format("layer{}.{}", layer + 1, what);
}

uint64_t count_parameters(const std::vector<SpikingLayer>& layers, const SpikingData& data) {
  uint64_t count = 0;
  for (const SpikingLayer& layer : layers)
    for (const SpikingParameter& p : parameters_of(layer)) count += p.elements();
  const uint64_t of_inputs = uint64_t{data.units} * layers.front().neurons;
  return data.has_digits ? count - of_inputs + of_inputs / kDigits : count;
}

Graph spiking_training_graph(const SpikingTrainingSettings& settings, const SpikingData& data) {
  Graph graph;
  const Network network(graph, settings, data);
  const Value logits = network.logits(), loss = network.loss(logits);
  graph.output(kLogits, logits);
  graph.output(kLoss, loss);
  add_training(loss, training_options(settings, network.groups()));
  return graph;
}

Graph spiking_evaluation_graph(const SpikingTrainingSettings& settings, const SpikingData& data,
                               bool traces) {
  Graph graph;
  const Network network(graph, settings, data);
  graph.output(kLogits, network.logits());
  if (!traces) return graph;
  const SpikingResults& results = network.results();
  for (size_t layer = 0; layer < results.spikes.size(); ++layer) {
    graph.output(value_name(layer, "ids"), results.spikes[layer].ids);
    if (layer + 1 > settings.hidden.size()) graph.output(value_name(layer, "num"), results.spikes[layer].num);
  }
  if (results.potentials) graph.output(kPotentials, *results.potentials);
  return graph;
}

}  // namespace tessera::train
