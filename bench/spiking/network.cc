#include "spiking/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/random.h"
#include "io/npy.h"

namespace tessera::bench {
namespace {

/// Capacity for the neurons that are listed in all but the rarest steps.
uint32_t room_for(double activity, uint32_t neurons) {
  const double mean = activity * neurons;
  return std::min(neurons, static_cast<uint32_t>(std::ceil(mean + 7 * std::sqrt(mean) + 4)));
}

std::vector<SpikingLayer> layers_of(const SpikingCase& c) {
  std::vector<SpikingLayer> layers;
  for (size_t i = 1; i < c.sizes.size(); ++i) {
    const bool is_last = i + 1 == c.sizes.size();
    SpikingLayer layer{.inputs = c.sizes[i - 1], .neurons = c.sizes[i], .recurrent = c.recurrent && !is_last};
    layer.neuron.spikes = !is_last;
    layers.push_back(layer);
  }
  return layers;
}

SpikingNetworkOptions options_of(const SpikingCase& c, uint32_t threads) {
  SpikingNetworkOptions options;
  options.input_capacity = room_for(c.input_activity, c.sizes[0]);
  for (size_t i = 1; i < c.sizes.size(); ++i)
    options.capacities.push_back(i + 1 < c.sizes.size() ? room_for(c.listed, c.sizes[i]) : 0);
  options.expected_input_activity = c.input_activity;
  options.expected_activity = c.listed;
  options.threads = threads;
  return options;
}

}  // namespace

std::string SpikingCase::name() const {
  std::string name;
  for (size_t i = 0; i < sizes.size(); ++i)
    name += fmt::format("{}{}{}", i == 0 ? "" : "-", sizes[i],
                        recurrent && i > 0 && i + 1 < sizes.size() ? "r" : "");
  return fmt::format("{}, B {}, T {}", name, batch, steps);
}

SpikingBench::SpikingBench(const SpikingCase& of, uint32_t threads)
    : SpikingBench(of, layers_of(of), options_of(of, threads)) {}

SpikingBench::SpikingBench(const SpikingCase& of, std::vector<SpikingLayer> layers,
                           const SpikingNetworkOptions& options)
    : case_(of),
      layers_(std::move(layers)),
      input_capacity_(options.input_capacity),
      network_(layers_, of.steps, of.batch, options) {
  for (const SpikingLayer& layer : layers_) {
    weights_.push_back(parameters_.size());
    for (const SpikingParameter& parameter : parameters_of(layer)) {
      const bool is_weight = parameter.rows > 1;
      parameters_.emplace_back(parameter.elements(), parameter.name == "decay" ? kDecay : 1.0F);
      if (is_weight) gradients_.emplace_back(parameter.elements());
    }
  }
  for (const auto& parameter : parameters_) parameter_pointers_.push_back(parameter.data());
  for (auto& gradient : gradients_) gradient_pointers_.push_back(gradient.data());
  upstream_.resize(uint64_t{of.steps} * of.batch * layers_.back().neurons);
  base::RandomStream(4).fill_symmetric(upstream_);
  draw_inputs();
  calibrate();
}

void SpikingBench::draw_inputs() {
  const uint64_t lists = uint64_t{case_.steps} * case_.batch;
  ids_.resize(lists * input_capacity_);
  num_.resize(lists * 2);
  base::RandomSequence random{base::RandomStream(1)};
  const auto bound = static_cast<uint32_t>(case_.input_activity * 4294967296.0);
  for (uint64_t row = 0; row < lists; ++row) {
    uint32_t count = 0;
    for (uint32_t f = 0; f < layers_[0].inputs; ++f)
      if (random.word() < bound && count < input_capacity_)
        ids_[row * input_capacity_ + count++] = static_cast<uint16_t>(f);
    num_[2 * row] = num_[2 * row + 1] = count;
  }
}

void SpikingBench::draw_weight(size_t layer, double scale) {
  for (size_t i = 0; i < (layers_[layer].recurrent ? 2U : 1U); ++i) {
    std::vector<float>& weight = parameters_[weights_[layer] + i];
    base::RandomStream(2, static_cast<uint32_t>(i), static_cast<uint32_t>(layer)).fill_normal(weight);
    const double factor = i == 0 ? scale : 0.3 / std::sqrt(layers_[layer].neurons);
    for (float& w : weight) w = static_cast<float>(w * factor);
  }
}

// Finds the scale of each layer's weights, then ϑ_grad, by bisection.
void SpikingBench::calibrate() {
  constexpr int kHalvings = 14;
  for (size_t i = 0; i < layers_.size(); ++i) draw_weight(i, 0.1);
  control_.gradient_threshold = 0.999F;
  for (size_t i = 0; i < hidden(); ++i) {
    double low = 0, high = 8 / (layers_[i].neuron.gain * std::sqrt(case_.input_activity * layers_[i].inputs));
    for (int h = 0; h < kHalvings; ++h) {
      const double middle = (low + high) / 2;
      draw_weight(i, middle);
      forward();
      (firing(i) < case_.firing ? low : high) = middle;
    }
  }
  double low = -1, high = 1;
  for (int h = 0; h < kHalvings; ++h) {
    const double middle = (low + high) / 2;
    control_.gradient_threshold = static_cast<float>(middle);
    forward();
    double mean = 0;
    for (size_t i = 0; i < hidden(); ++i) mean += listed(i) / static_cast<double>(hidden());
    (mean > case_.listed ? low : high) = middle;
  }
  control_.gradient_threshold = static_cast<float>(high);
  forward();
}

size_t SpikingBench::hidden() const {
  return static_cast<size_t>(
      std::ranges::count_if(layers_, [](const SpikingLayer& layer) { return layer.neuron.spikes; }));
}

SpikeLists SpikingBench::inputs() const { return {ids_.data(), num_.data(), input_capacity_}; }

void SpikingBench::forward() { network_.forward(inputs(), parameter_pointers_, control_); }
void SpikingBench::gradients() {
  network_.gradients(inputs(), parameter_pointers_, upstream_.data(), gradient_pointers_);
}

double SpikingBench::mean(uint64_t count, size_t layer) const {
  return static_cast<double>(count) / (double{1} * case_.steps * case_.batch * layers_[layer].neurons);
}
double SpikingBench::firing(size_t layer) const { return mean(network_.counts(layer).spikes, layer); }
double SpikingBench::listed(size_t layer) const {
  const SpikingCounts counts = network_.counts(layer);
  return mean(counts.spikes + counts.candidates, layer);
}
double SpikingBench::dropped() const {
  uint64_t count = 0;
  for (size_t i = 0; i < hidden(); ++i)
    count += network_.counts(i).dropped_spikes + network_.counts(i).dropped_candidates;
  return static_cast<double>(count);
}

void SpikingBench::write(const std::string& folder) const {
  const uint32_t rows = case_.steps * case_.batch, inputs = layers_[0].inputs;
  std::vector<float> dense(uint64_t{rows} * inputs);
  for (uint64_t row = 0; row < rows; ++row)
    for (uint32_t i = 0; i < num_[2 * row]; ++i) dense[row * inputs + ids_[row * input_capacity_ + i]] = 1;
  io::write_npy(folder + "/inputs.npy", rows, inputs, dense);
  io::write_npy(folder + "/upstream.npy", rows, layers_.back().neurons, upstream_);
  size_t number = 0, gradient = 0;
  for (const SpikingLayer& layer : layers_)
    for (const SpikingParameter& parameter : parameters_of(layer)) {
      io::write_npy(fmt::format("{}/parameter{}.npy", folder, number), parameter.rows, parameter.cols,
                    parameters_[number]);
      ++number;
      if (parameter.rows == 1) continue;
      io::write_npy(fmt::format("{}/gradient{}.npy", folder, gradient), parameter.rows, parameter.cols,
                    gradients_[gradient]);
      ++gradient;
    }
  const std::vector<float> bar = {control_.gradient_threshold};
  io::write_npy(folder + "/gradient_threshold.npy", 1, 1, bar);
  std::vector<float> spikes;
  for (size_t i = 0; i < hidden(); ++i) spikes.push_back(static_cast<float>(network_.counts(i).spikes));
  io::write_npy(folder + "/spikes.npy", 1, static_cast<uint32_t>(spikes.size()), spikes);
}

double SpikingBench::reserved_bytes() const {
  const double inputs = double{1} * case_.steps * case_.batch * (input_capacity_ * 2.0 + 8);
  return static_cast<double>(network_.stash_bytes()) + inputs;
}

double SpikingBench::used_bytes() const {
  constexpr double kId = 2, kListed = 6, kCounts = 8;
  double bytes = 0;
  for (uint64_t row = 0; row < uint64_t{case_.steps} * case_.batch; ++row) bytes += kId * num_[2 * row];
  bytes += kCounts * case_.steps * case_.batch;
  for (size_t i = 0; i < hidden(); ++i) {
    const SpikingCounts counts = network_.counts(i);
    bytes += kListed * static_cast<double>(counts.spikes + counts.candidates) +
             kCounts * case_.steps * case_.batch;
  }
  return bytes;
}

double SpikingBench::dense_bytes() const {
  double neurons = 0;
  for (const SpikingLayer& layer : layers_) neurons += layer.inputs;
  return neurons * case_.steps * case_.batch * sizeof(float);
}

}  // namespace tessera::bench
