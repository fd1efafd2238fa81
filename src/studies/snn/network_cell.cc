#include "studies/snn/network_cell.h"

#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/gradients.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.h"
#include "studies/paper/measure_session.h"

namespace tessera::studies::snn {
namespace {

using graph::Graph;
using graph::SpikingResults;

constexpr uint64_t kNetworkCellSeed = 1;
constexpr float kDecay = 0.95F;
constexpr float kGradientThreshold = 0.9F;
// Standard deviation of the sum of as many weights as a list has entries: with this value, about the capacity
// of lists is used in every layer.
constexpr double kCurrent = 1;
// A chip's tiles without the readout's tile.
constexpr uint32_t kHiddenTiles = 1471;

std::vector<SpikingLayer> network_cell_layers_of(const NetworkCase& what) {
  const Neuron neuron{.reset = Reset::zero,
                      .reset_gradient = ResetGradient::detached,
                      .surrogate = {SurrogateFamily::superspike, 10},
                      .gain = 10 * (1 - kDecay)};
  std::vector<SpikingLayer> layers;
  uint32_t inputs = kInputs;
  const auto add = [&](uint32_t neurons) {
    layers.push_back(
        {.inputs = inputs, .neurons = neurons, .neuron = neuron, .delay = layers.empty() ? 0U : 1U});
    inputs = neurons;
  };
  for (const uint32_t neurons : what.hidden) add(neurons);
  add(kClasses);
  return layers;
}

SpikingResults add_layers(Graph& graph, const NetworkCase& what) {
  const std::vector<SpikingLayer> layers = network_cell_layers_of(what);
  graph::SpikingOptions options{.gradient_threshold = graph.input("gradient_threshold", graph::Shape{}),
                                .seed = kNetworkCellSeed,
                                .expected_input_activity = what.room,
                                .expected_activity = what.room};
  for (const SpikingLayer& layer : layers)
    options.capacities.push_back(layer.neurons == kClasses ? 0 : list_room(layer.neurons, what.room));
  if (what.neurons_per_tile > 0) {
    options.neurons_per_tile.assign(what.hidden.size(), what.neurons_per_tile);
    options.neurons_per_tile.push_back(0);
  }
  const graph::Spikes in = spike_input(graph, "in", what.steps, what.batch, list_room(kInputs, what.room));
  return spiking(
      in, layers,
      spiking_parameters(graph, "snn", layers, {.weight = kCurrent / std::sqrt(what.room), .decay = kDecay}),
      options);
}

/// Cross-entropy on the summed spikes of the last layer.
Graph training_step(const NetworkCase& what) {
  Graph graph;
  const SpikingResults results = add_layers(graph, what);
  const graph::Value loss = cross_entropy(spike_counts(results.spikes.back(), kClasses),
                                          graph.input("labels", {what.batch}, Type::u32));
  graph.output("loss", loss);
  if (what.adam)
    add_training(loss, {.optimizer = graph::Adam{}});
  else
    add_training(loss, {.optimizer = graph::Sgd{}});
  return graph;
}

/// Lists filled to capacity with randomly chosen inputs; with labels, if the graph takes them.
graph::Arrays network_cell_inputs_of(const Graph& graph, const NetworkCase& what) {
  const uint32_t room = list_room(kInputs, what.room);
  const base::RandomStream random(kNetworkCellSeed);
  graph::Arrays arrays;
  std::vector<float>&ids = arrays["in.ids"], &num = arrays["in.num"];
  for (uint64_t row = 0; row < uint64_t{what.steps} * what.batch; ++row) {
    // One of each stretch of inputs, so that none is there twice.
    for (uint32_t i = 0; i < room; ++i) {
      const uint32_t begin = kInputs * i / room, end = kInputs * (i + 1) / room;
      ids.push_back(static_cast<float>(
          std::min(end - 1, begin + static_cast<uint32_t>(random.uniform(row * room + i) * (end - begin)))));
    }
    num.insert(num.end(), 2, static_cast<float>(room));
  }
  for (uint32_t b = 0; b < what.batch; ++b) arrays["labels"].push_back(static_cast<float>(b % kClasses));
  arrays["gradient_threshold"] = {kGradientThreshold};
  for (const graph::ValueInfo& info : graph.values())
    if (info.kind == graph::Kind::input && !arrays.contains(info.name))
      arrays[info.name].assign(info.type.elements(), info.name == "step" ? 1.0F : 1e-3F);
  std::erase_if(arrays, [&](const auto& array) { return !graph.contains(array.first); });
  return arrays;
}

/// Enters the activity of a forward pass on the host: it depends on the machine by roundings alone.
void enter_activity(const NetworkCase& what, const Setting& setting, Result& result) {
  Graph graph;
  const SpikingResults results = add_layers(graph, what);
  for (size_t l = 0; l < what.hidden.size(); ++l)
    graph.output(fmt::format("num{}", l), results.spikes[l].num);
  graph::Session session(graph, Machine(machine::host(setting.threads)));
  double fired = 0, listed = 0;
  for (const auto& [name, num] : session.run(network_cell_inputs_of(graph, what)))
    for (size_t i = 0; i < num.size(); i += 2) {
      fired += num[i];
      listed += num[i + 1];
    }
  const double places = double{1} * what.steps * what.batch * static_cast<double>(neurons_of(what));
  result.values["fired"] = fired / places;
  result.values["listed"] = listed / places;
}

machine::Machine machine_of(const NetworkCase& what, const machine::Machine& chip) {
  if (what.chips == 1) return chip;
  if (chip.chips > 1) throw UsageError(fmt::format("{} has several chips already", chip.name));
  machine::Machine pod = machine::find("pod16");
  machine::Machine all = chip;
  all.chips = what.chips;
  all.chip_tiles = chip.tiles;
  all.tiles = chip.tiles * what.chips;
  all.topology = pod.topology;
  all.link_bytes_per_second = pod.link_bytes_per_second;
  all.link_latency_seconds = pod.link_latency_seconds;
  all.chip_sync_cycles = pod.chip_sync_cycles;
  return all;
}

void enter_account(const graph::RunCost& cost, Result& result) {
  double all = 0;
  for (const auto& [phase, cycles] : cost.cycles) all += cycles;
  for (const auto& [phase, cycles] : cost.cycles) result.values[phase + "_share"] = cycles / all;
  result.values["balance"] = cost.balance;
  for (const graph::LinkCost& link : cost.links)
    result.values["link_bytes"] += static_cast<double>(link.bytes);
  result.values["tile_bytes"] = static_cast<double>(cost.fullest_tile_bytes);
  result.values["total_bytes"] = static_cast<double>(cost.total_bytes);
}

}  // namespace

std::vector<uint32_t> hidden_layers(uint32_t neurons_per_tile, uint32_t layers) {
  std::vector<uint32_t> neurons;
  for (uint32_t l = 0; l < layers; ++l)
    neurons.push_back(neurons_per_tile * (kHiddenTiles / layers + (l < kHiddenTiles % layers ? 1 : 0)));
  return neurons;
}

uint32_t list_room(uint32_t neurons, double fraction) {
  return std::max(8U, static_cast<uint32_t>(neurons * fraction) / 8 * 8);
}

uint64_t neurons_of(const NetworkCase& what) {
  return std::accumulate(what.hidden.begin(), what.hidden.end(), uint64_t{0});
}

std::string name_of(const NetworkCase& what) {
  std::string name =
      fmt::format("{} layers, {} neurons, capacity {:.3g} %, T = {}, batch {}, {}", what.hidden.size(),
                  neurons_of(what), 100 * what.room, what.steps, what.batch, what.adam ? "Adam" : "SGD");
  if (what.neurons_per_tile > 0) name += fmt::format(", {} neurons per tile", what.neurons_per_tile);
  if (what.chips > 1) name += fmt::format(", {} chips", what.chips);
  return name;
}

Result run_network(const NetworkCase& what, const Setting& setting) {
  const Graph graph = training_step(what);
  Result result;
  graph::Session session(graph, Machine(machine_of(what, setting.machine)),
                         {.threads = setting.threads, .on_chips = what.chips});
  result.fits = session.fits();
  if (!result.fits) {
    result.reason = session.cost().overflow;
    result.reason.resize(std::min(result.reason.find('\n'), result.reason.size()));
    return result;
  }
  const graph::Arrays inputs = network_cell_inputs_of(graph, what);
  if (setting.on_host()) {
    result.values["seconds"] = median_seconds(session, inputs);
  } else {
    const graph::RunCost cost = session.measure(GraphArrays(session, inputs).tensors());
    result.values["seconds"] = cost.seconds;
    enter_account(cost, result);
  }
  result.values["samples_per_second"] = what.batch / result.values["seconds"];
  enter_activity(what, setting, result);
  return result;
}

}  // namespace tessera::studies::snn
