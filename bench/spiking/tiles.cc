// A training step of spiking networks on modelled machines: cycles by phase, memory, samples per second.
//
//   bench_spiking_tiles [MACHINE [THREADS]]
//
// Weights are scaled so that 2.5 % of each hidden layer fire, and ϑ_grad is such that about 4 % are listed.
// The step runs, so that costs are for the spikes that fire; "estimate" is the cost of the dry run, which
// knows only the lists of inputs, and expects other lists to be equally full. A step is a forward pass,
// gradients, and updates by SGD.
#include <fmt/format.h>
#include <tessera/gradients.h>
#include <tessera/graph.h>
#include <tessera/spiking.h>

#include <algorithm>
#include <exception>
#include <string>
#include <vector>

#include "spiking/network.h"

namespace tessera::bench {
namespace {

using graph::Graph;
using graph::Tensor;
using graph::Value;

struct Setup {
  std::string name;
  std::vector<SpikingLayer> layers;
  std::vector<uint32_t> capacities;
  uint32_t steps = 0;
  uint32_t batch = 0;
  uint32_t input_capacity = 0;
  double input_activity = 0;
  Type weights = Type::f32;
};

constexpr double kFiring = 0.025, kListed = 0.04;

SpikingLayer hidden(uint32_t inputs, uint32_t neurons, uint32_t delay) {
  return {.inputs = inputs, .neurons = neurons, .neuron = {.gain = 10 * (1 - kDecay)}, .delay = delay};
}

/// A small network, and the throughput set-up of Finkbeiner et al. (arXiv 2311.04386) with n = 2: 1471 · 2
/// neurons on a chip in three layers; the first ten neurons of the last layer are classes.
std::vector<Setup> setups() {
  const SpikingLayer readout{.inputs = 256, .neurons = 20, .neuron = {.spikes = false}};
  Setup small{"700-256-20", {hidden(700, 256, 0), readout}, {32, 0}, 100, 48, 40, 0.02};
  Setup paper{"1152-982-980-980",
              {hidden(1152, 982, 1), hidden(982, 980, 1), hidden(980, 980, 1)},
              {48, 48, 48},
              10,
              48,
              48,
              0.02};
  Setup half = paper;
  half.name += ", weights f16";
  half.weights = Type::f16;
  return {small, paper, half};
}

/// The step as a graph: cross-entropy on the readout's mean or on counts of the first ten neurons.
struct Step {
  explicit Step(const Setup& of) {
    const graph::Spikes in = graph::spike_input(graph, "in", of.steps, of.batch, of.input_capacity);
    parameters = graph::spiking_parameters(graph, "snn", of.layers, {}, of.weights);
    graph::SpikingOptions options{.capacities = of.capacities,
                                  .gradient_threshold = graph.input("gradient_threshold", graph::Shape{})};
    options.expected_input_activity = of.input_activity;
    options.expected_activity = kListed;
    const graph::SpikingResults results = graph::spiking(in, of.layers, parameters, options);
    const Value logits =
        results.potentials
            ? graph::readout(*results.potentials, of.batch, graph::Readout::mean)
            : graph::slice(graph::spike_counts(results.spikes.back(), of.layers.back().neurons), 1, 0, 10);
    const Value loss = graph::cross_entropy(logits, graph.input("labels", {of.batch}, Type::u32));
    graph.output("loss", loss);
    graph::add_training(loss);
  }
  Graph graph;
  std::vector<Value> parameters;
};

void print_cycles(const char* what, const std::map<std::string, double>& cycles) {
  double total = 0;
  for (const auto& [phase, count] : cycles) total += count;
  fmt::print("  {:<20} {:>10.0f} cycles:", what, total);
  for (const auto& [phase, count] : cycles) fmt::print(" {} {:.1f} %", phase, 100 * count / total);
  fmt::print("\n");
}

void run(const Setup& setup, const Machine& machine) {
  const SpikingCase of{.batch = setup.batch,
                       .steps = setup.steps,
                       .input_activity = setup.input_activity,
                       .firing = kFiring,
                       .listed = kListed};
  SpikingBench data(of, setup.layers, {.input_capacity = setup.input_capacity, .trains = false});
  Step step(setup);
  graph::Session session(step.graph, machine);
  fmt::print("{}, T {}, B {}; fires/listed %:", setup.name, setup.steps, setup.batch);
  for (size_t l = 0; l < data.hidden(); ++l)
    fmt::print(" {:.1f}/{:.1f}", 100 * data.firing(l), 100 * data.listed(l));
  fmt::print("\n");
  if (!session.fits()) {
    fmt::print("  {}\n", session.cost().overflow);
    return;
  }
  for (size_t p = 0; p < step.parameters.size(); ++p)
    session.set(step.graph.info(step.parameters[p].id).name, data.parameters()[p]);
  std::vector<uint32_t> labels(setup.batch);
  for (uint32_t b = 0; b < setup.batch; ++b) labels[b] = b % 10;
  float lr = 0, loss = 0;
  const std::vector<Tensor> arrays = {{"in.ids", data.ids().data()},
                                      {"in.num", data.num().data()},
                                      {"gradient_threshold", &data.gradient_threshold()},
                                      {"labels", labels.data()},
                                      {"lr", &lr},
                                      {"loss", &loss}};
  const graph::RunCost executed = session.measure(arrays), estimate = session.cost(arrays);
  for (const graph::OperationCost& operation : executed.operations)
    if (operation.operation.starts_with("spiking"))
      print_cycles(operation.operation.c_str(), operation.cycles);
  print_cycles("step", executed.cycles);
  print_cycles("estimate", estimate.cycles);
  fmt::print("  {:.1f} us, {:.0f} samples per second; fullest tile {:.0f} of {:.0f} KiB; loss {:.4f}\n",
             1e6 * executed.seconds, setup.batch / executed.seconds, executed.fullest_tile_bytes / 1024.0,
             executed.tile_bytes / 1024.0, loss);
  const auto bytes_of = [](const std::map<std::string, uint64_t>& tile) {
    uint64_t bytes = 0;
    for (const auto& [purpose, count] : tile) bytes += count;
    return bytes;
  };
  const auto fullest = std::ranges::max_element(executed.tiles, {}, bytes_of);
  fmt::print("  tile {}, KiB:", fullest - executed.tiles.begin());
  for (const auto& [purpose, count] : *fullest) fmt::print(" {} {:.0f}", purpose, count / 1024.0);
  fmt::print("\n");
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) try {
  const uint32_t threads = argc > 2 ? static_cast<uint32_t>(std::stoul(argv[2])) : 0;
  const tessera::Machine machine = tessera::Machine::find(argc > 1 ? argv[1] : "gc200", threads);
  for (const tessera::bench::Setup& setup : tessera::bench::setups()) tessera::bench::run(setup, machine);
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
