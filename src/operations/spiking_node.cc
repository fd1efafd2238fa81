#include "operations/spiking_node.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include "kernels/common/spiking_neuron.h"
#include "kernels/common/spiking_overflow.h"

namespace tessera::graph {
namespace {

using ops::SpikingProblem;

constexpr size_t kWords = 10;

std::vector<SpikingLayer> layers_of(const Node& node) {
  const std::vector<int64_t>& words = node.list("layers");
  if (words.size() % kWords != 0)
    throw UsageError(fmt::format("spiking: {} numbers describe layers of {}", words.size(), kWords));
  std::vector<SpikingLayer> layers;
  for (auto at = words.begin(); at != words.end(); at += kWords) {
    const kernels::SpikingNeuron neuron(words, static_cast<size_t>(at - words.begin()) + 4);
    SpikingLayer layer{.inputs = static_cast<uint32_t>(at[0]),
                       .neurons = static_cast<uint32_t>(at[1]),
                       .neuron = neuron,
                       .recurrent = neuron.recurrent,
                       .delay = static_cast<uint32_t>(at[2])};
    layer.decay_per_neuron = (at[3] & 1) != 0;
    layer.current_decay_per_neuron = (at[3] & 2) != 0;
    layer.threshold_per_neuron = (at[3] & 4) != 0;
    layers.push_back(layer);
  }
  return layers;
}

}  // namespace

std::vector<int64_t> words_of(const std::vector<SpikingLayer>& layers) {
  std::vector<int64_t> words;
  for (const SpikingLayer& layer : layers) {
    const int64_t per_neuron = int64_t{layer.decay_per_neuron} |
                               int64_t{layer.current_decay_per_neuron} << 1 |
                               int64_t{layer.threshold_per_neuron} << 2;
    words.insert(words.end(), {layer.inputs, layer.neurons, layer.delay, per_neuron});
    for (const int64_t value : kernels::spiking_params(layer.neuron, layer.recurrent).values)
      words.push_back(value);
  }
  return words;
}

uint32_t spiking_size(const Node& node, std::string_view name) {
  const int64_t value = node.integer(name);
  if (value < 1 || value > int64_t{~uint32_t{0}})
    throw UsageError(fmt::format("spiking: {} = {} is out of range", name, value));
  return static_cast<uint32_t>(value);
}

std::vector<SpikingProblem> spiking_problems_of(const Node& node, const TensorType& ids) {
  const uint32_t batch = spiking_size(node, "batch");
  const std::vector<int64_t>& capacities = node.list("capacities");
  const SpikingNetworkOptions options{.input_capacity = ids.cols() / batch,
                                      .capacities = {capacities.begin(), capacities.end()},
                                      .learns_dynamics = node.integer("learns_dynamics") != 0,
                                      .expected_input_activity = node.number("expected_input_activity"),
                                      .expected_activity = node.number("expected_activity")};
  std::vector<SpikingProblem> problems = ops::spiking_problems(layers_of(node), ids.rows(), batch, options);
  for (SpikingProblem& problem : problems) problem.operation += static_cast<uint32_t>(node.integer("stream"));
  return problems;
}

std::optional<size_t> position_of(const std::vector<SpikingProblem>& problems, size_t layer, size_t member) {
  std::optional<size_t> found;
  size_t position = 0;
  each_result(problems, [&](size_t l, size_t m, const ops::SpikingMatrix&) {
    if (l == layer && m == member) found = position;
    ++position;
  });
  return found;
}

std::vector<SpikingParameter> all_parameters(const std::vector<SpikingProblem>& problems) {
  std::vector<SpikingParameter> all;
  for (const SpikingProblem& problem : problems)
    for (const SpikingParameter& parameter : parameters_of(problem.layer)) all.push_back(parameter);
  return all;
}

std::vector<size_t> learned_positions(const std::vector<SpikingProblem>& problems) {
  std::vector<size_t> positions;
  size_t first = 0;
  for (const SpikingProblem& problem : problems) {
    for (size_t i = 0; i < ops::learned_parameters(problem).size(); ++i) positions.push_back(first + i);
    first += parameters_of(problem.layer).size();
  }
  return positions;
}

}  // namespace tessera::graph
