#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/spiking.h>

#include <algorithm>
#include <cmath>

#include "ops/spiking/spiking.h"

namespace tessera {
namespace {

// Lists of spikes store a neuron's number in 16 bits.
constexpr uint32_t kMostNeurons = 1U << 16;

void require(bool holds, const std::string& what) {
  if (!holds) throw UsageError("a spiking layer " + what);
}

void check(const SpikingLayer& layer) {
  require(layer.inputs > 0 && layer.neurons > 0,
          fmt::format("has {} inputs and {} neurons; it needs at least one of each", layer.inputs,
                      layer.neurons));
  require(layer.inputs <= kMostNeurons && layer.neurons <= kMostNeurons,
          fmt::format("has {} inputs and {} neurons; at most {} are possible: split it", layer.inputs,
                      layer.neurons, kMostNeurons));
  const Neuron& n = layer.neuron;
  require(std::isfinite(n.gain), "has a gain that is not finite");
  if (!n.spikes) {
    require(!layer.recurrent, "without spikes cannot be recurrent: it has nothing to pass back");
    require(!n.adaptive, "without spikes has no threshold to adapt");
    return;
  }
  require(n.surrogate.slope > 0 && std::isfinite(n.surrogate.slope) && std::isfinite(n.surrogate.scale),
          fmt::format("has a surrogate of slope {} and scale {}; the slope must be above 0, both finite",
                      n.surrogate.slope, n.surrogate.scale));
  require(std::isfinite(n.adaptation_decay) && std::isfinite(n.adaptation_strength),
          "has an adaptation that is not finite");
  require(n.reset != Reset::late_zero || n.reset_gradient != ResetGradient::attached,
          "cannot attach the gradient of a late reset to zero: use gated or detached");
}

}  // namespace

std::string_view name_of(SurrogateFamily family) {
  switch (family) {
    case SurrogateFamily::superspike: return "superspike";
    case SurrogateFamily::fast_sigmoid: return "fast_sigmoid";
    case SurrogateFamily::arctan: return "arctan";
    case SurrogateFamily::triangle: return "triangle";
    case SurrogateFamily::sigmoid: return "sigmoid";
    case SurrogateFamily::boxcar: return "boxcar";
  }
  return "";
}

std::vector<SpikingParameter> parameters_of(const SpikingLayer& layer) {
  check(layer);
  const auto each = [&](bool per_neuron) { return per_neuron ? layer.neurons : 1; };
  std::vector<SpikingParameter> parameters = {{"weight", layer.inputs, layer.neurons}};
  if (layer.recurrent) parameters.push_back({"recurrent", layer.neurons, layer.neurons});
  parameters.push_back({"decay", 1, each(layer.decay_per_neuron)});
  if (layer.neuron.synaptic) parameters.push_back({"current_decay", 1, each(layer.current_decay_per_neuron)});
  if (layer.neuron.spikes) parameters.push_back({"threshold", 1, each(layer.threshold_per_neuron)});
  return parameters;
}

void ops::check_lists(const uint16_t* ids, const uint32_t* num, uint64_t steps, const SpikeListRoom& room) {
  for (uint64_t row = 0; row < steps * room.batch; ++row, ids += room.capacity) {
    const uint32_t spikes = num[2 * row], listed = num[2 * row + 1];
    if (spikes > listed || listed > room.capacity)
      throw UsageError(fmt::format("step {} of sample {} lists {} spikes and {} neurons, with room for {}",
                                   row / room.batch, row % room.batch, spikes, listed, room.capacity));
    if (listed == 0) continue;
    const uint16_t most = *std::max_element(ids, ids + listed);
    if (most >= room.neurons)
      throw UsageError(fmt::format("step {} of sample {} lists input {}; there are {}", row / room.batch,
                                   row % room.batch, most, room.neurons));
  }
}

}  // namespace tessera
