// Spiking neurons that take currents. Callers have checked their arrays and pass addresses, 0 for absent
// ones.
#include <fmt/format.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <tessera/error.h>
#include <tessera/spiking.h>

#include <algorithm>
#include <array>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bindings.h"

namespace tessera::python {
namespace {

using namespace nb::literals;

template <class Kind, size_t n>
Kind named(const char* what, const std::string& name, const std::array<const char*, n>& names) {
  std::string known;
  for (size_t i = 0; i < n; ++i) {
    if (name == names[i]) return static_cast<Kind>(i);
    known += (i > 0 ? ", " : "") + std::string(names[i]);
  }
  throw UsageError(fmt::format("unknown {} '{}' (choose from {})", what, name, known));
}

SurrogateFamily family_named(const std::string& name) {
  for (uint8_t i = 0;; ++i) {
    const auto family = static_cast<SurrogateFamily>(i);
    if (name_of(family).empty()) throw UsageError(fmt::format("unknown surrogate '{}'", name));
    if (name_of(family) == name) return family;
  }
}

Neuron neuron_of(bool spikes, bool synaptic, const std::string& reset, const std::string& reset_gradient,
                 bool fires_at_threshold, const std::string& surrogate, float slope, float scale,
                 float gain) {
  constexpr std::array kResets = {"none", "zero", "subtract", "late_zero", "late_subtract"};
  constexpr std::array kGradients = {"detached", "gated", "attached"};
  return {.spikes = spikes,
          .synaptic = synaptic,
          .fires_at_threshold = fires_at_threshold,
          .reset = named<Reset>("reset", reset, kResets),
          .reset_gradient = named<ResetGradient>("reset gradient", reset_gradient, kGradients),
          .surrogate = {family_named(surrogate), slope, scale},
          .gain = gain};
}

// Arrays in the order of the structures' members.
SpikingNeurons::Inputs inputs_of(const std::array<uintptr_t, 4>& in) {
  return {pointer<const float>(in[0]), pointer<const float>(in[1]), pointer<const float>(in[2]),
          pointer<const float>(in[3])};
}

void forward(const SpikingNeurons& neurons, const std::array<uintptr_t, 4>& in,
             const std::array<uintptr_t, 4>& results) {
  const nb::gil_scoped_release released;
  neurons.forward(inputs_of(in), {pointer<float>(results[0]), pointer<float>(results[1]),
                                  pointer<float>(results[2]), pointer<float>(results[3])});
}

void gradients(const SpikingNeurons& neurons, const std::array<uintptr_t, 4>& in,
               const std::array<uintptr_t, 6>& upstream, const std::array<uintptr_t, 4>& of) {
  const nb::gil_scoped_release released;
  neurons.gradients(
      inputs_of(in),
      {pointer<const float>(upstream[0]), pointer<const float>(upstream[1]),
       pointer<const float>(upstream[2]), pointer<const float>(upstream[3]),
       pointer<const float>(upstream[4]), pointer<const float>(upstream[5])},
      {pointer<float>(of[0]), pointer<float>(of[1]), pointer<float>(of[2]), pointer<float>(of[3])});
}

/// A network whose states are the caller's.
class Network {
 public:
  Network(std::vector<SpikingLayer> layers, uint32_t steps, uint32_t batch, uint32_t input_capacity,
          std::vector<uint32_t> capacities, bool trains, bool learns_dynamics, bool hidden_upstream)
      : network_(std::move(layers), steps, batch,
                 {.input_capacity = input_capacity,
                  .capacities = std::move(capacities),
                  .trains = trains,
                  .learns_dynamics = learns_dynamics,
                  .hidden_upstream = hidden_upstream}),
        hidden_upstream_(hidden_upstream),
        input_capacity_(input_capacity),
        last_(network_.layers() - 1),
        outputs_(network_.layer(last_).neurons) {}

  uint64_t state_bytes() const { return network_.state_bytes(); }
  std::string plan() const { return network_.plan(); }

  /// `result` is [steps, batch, neurons]: potentials of the last layer, or if it has any, spikes.
  void forward(uintptr_t ids, uintptr_t num, const std::vector<uintptr_t>& parameters,
               float gradient_threshold, uint32_t most_listed, uint64_t seed, uint32_t step, uintptr_t state,
               uintptr_t result) {
    const nb::gil_scoped_release released;
    network_.forward(lists(ids, num), pointers<const float>(parameters),
                     {gradient_threshold, most_listed, seed, step}, pointer<std::byte>(state));
    auto* to = pointer<float>(result);
    if (!network_.layer(last_).neuron.spikes) {
      const std::span<const float> potentials = network_.potentials(last_, pointer<std::byte>(state));
      std::copy(potentials.begin(), potentials.end(), to);
      return;
    }
    std::fill_n(to, rows() * outputs_, 0.0F);
    const SpikeLists spikes = network_.spikes(last_, pointer<std::byte>(state));
    for (uint64_t row = 0; row < rows(); ++row)
      for (uint32_t i = 0; i < spikes.num[2 * row]; ++i)
        to[row * outputs_ + spikes.ids[row * spikes.capacity + i]] = 1;
  }

  /// Spikes of each neuron of the hidden layers, with all layers side by side: [batch, neurons].
  void count_hidden(uintptr_t state, uintptr_t counts) const {
    const nb::gil_scoped_release released;
    auto* to = pointer<float>(counts);
    std::fill_n(to, uint64_t{network_.batch()} * hidden_neurons(), 0.0F);
    each_hidden([&](size_t layer, uint64_t first) {
      const SpikeLists spikes = network_.spikes(layer, pointer<std::byte>(state));
      for (uint64_t row = 0; row < rows(); ++row) {
        float* of_sample = to + row % network_.batch() * hidden_neurons() + first;
        for (uint32_t i = 0; i < spikes.num[2 * row]; ++i)
          of_sample[spikes.ids[row * spikes.capacity + i]] += 1;
      }
    });
  }

  /// From the gradients of the result, and of the hidden layers' counts if there are any.
  void gradients(uintptr_t ids, uintptr_t num, const std::vector<uintptr_t>& parameters, uintptr_t state,
                 uintptr_t upstream, uintptr_t of_counts, const std::vector<uintptr_t>& of_parameters) {
    const nb::gil_scoped_release released;
    const auto* given = pointer<const float>(upstream);
    std::vector<float> listed;
    if (network_.layer(last_).neuron.spikes) {
      listed = gathered(state, last_, [&](uint64_t row) { return given + row * outputs_; });
      given = listed.data();
    }
    std::vector<std::vector<float>> of_hidden;
    if (hidden_upstream_)
      each_hidden([&](size_t layer, uint64_t first) {
        of_hidden.push_back(gathered(state, layer, [&](uint64_t row) {
          return pointer<const float>(of_counts) + row % network_.batch() * hidden_neurons() + first;
        }));
      });
    std::vector<const float*> hidden;
    for (const std::vector<float>& values : of_hidden) hidden.push_back(values.data());
    network_.gradients(lists(ids, num), pointers<const float>(parameters), given,
                       pointers<float>(of_parameters), nullptr, pointer<std::byte>(state), hidden);
  }

  /// For each layer: spikes, candidates, dropped spikes, dropped candidates; zeros for a layer without
  /// spikes.
  std::vector<std::tuple<uint64_t, uint64_t, uint64_t, uint64_t>> counts(uintptr_t state) const {
    std::vector<std::tuple<uint64_t, uint64_t, uint64_t, uint64_t>> all;
    for (size_t i = 0; i <= last_; ++i) {
      const SpikingCounts c =
          network_.layer(i).neuron.spikes ? network_.counts(i, pointer<std::byte>(state)) : SpikingCounts{};
      all.emplace_back(c.spikes, c.candidates, c.dropped_spikes, c.dropped_candidates);
    }
    return all;
  }

 private:
  uint64_t rows() const { return uint64_t{network_.steps()} * network_.batch(); }

  uint64_t hidden_neurons() const {
    uint64_t sum = 0;
    for (size_t i = 0; i < last_; ++i) sum += network_.layer(i).neurons;
    return sum;
  }
  /// Calls visit(layer, neurons before it).
  template <class Visit>
  void each_hidden(const Visit& visit) const {
    uint64_t first = 0;
    for (size_t i = 0; i < last_; first += network_.layer(i++).neurons) visit(i, first);
  }

  /// What the neurons in a layer's lists have in the row of numbers that row_of(row) begins.
  template <class RowOf>
  std::vector<float> gathered(uintptr_t state, size_t layer, const RowOf& row_of) const {
    const SpikeLists spikes = network_.spikes(layer, pointer<std::byte>(state));
    std::vector<float> values(rows() * spikes.capacity);
    for (uint64_t row = 0; row < rows(); ++row) {
      const float* from = row_of(row);
      for (uint32_t i = 0; i < spikes.num[2 * row + 1]; ++i)
        values[row * spikes.capacity + i] = from[spikes.ids[row * spikes.capacity + i]];
    }
    return values;
  }

  SpikeLists lists(uintptr_t ids, uintptr_t num) const {
    return {pointer<const uint16_t>(ids), pointer<const uint32_t>(num), input_capacity_};
  }

  SpikingNetwork network_;
  bool hidden_upstream_;
  uint32_t input_capacity_;
  size_t last_;
  uint32_t outputs_;
};

void bind_network(nb::module_& m) {
  nb::class_<SpikingLayer>(m, "SpikingLayer", "A layer of neurons and the weights of its inputs.")
      .def(
          "__init__",
          [](SpikingLayer* self, uint32_t inputs, uint32_t neurons, const Neuron& neuron, bool recurrent,
             bool decay_per_neuron, bool current_decay_per_neuron, bool threshold_per_neuron) {
            new (self) SpikingLayer{.inputs = inputs,
                                    .neurons = neurons,
                                    .neuron = neuron,
                                    .recurrent = recurrent,
                                    .decay_per_neuron = decay_per_neuron,
                                    .current_decay_per_neuron = current_decay_per_neuron,
                                    .threshold_per_neuron = threshold_per_neuron};
          },
          "inputs"_a, "neurons"_a, "neuron"_a, "recurrent"_a, "decay_per_neuron"_a,
          "current_decay_per_neuron"_a, "threshold_per_neuron"_a);
  m.def(
      "spiking_state_size",
      [](const std::vector<SpikingLayer>& layers, std::vector<uint32_t> capacities, bool trains,
         bool learns_dynamics) {
        const SpikingStateSize size = spiking_state_size(
            layers,
            {.capacities = std::move(capacities), .trains = trains, .learns_dynamics = learns_dynamics});
        return std::tuple(size.per_step_and_sample, size.per_sample, size.fixed);
      },
      "layers"_a, "capacities"_a, "trains"_a, "learns_dynamics"_a);
  nb::class_<Network>(
      m, "SpikingNetwork",
      "Layers that take lists of spikes, for sequences of one length and batches of one size. "
      "Safe to call from several threads, each with a state of its own.")
      .def(nb::init<std::vector<SpikingLayer>, uint32_t, uint32_t, uint32_t, std::vector<uint32_t>, bool,
                    bool, bool>(),
           "layers"_a, "steps"_a, "batch"_a, "input_capacity"_a, "capacities"_a, "trains"_a,
           "learns_dynamics"_a, "hidden_upstream"_a)
      .def_prop_ro("state_bytes", &Network::state_bytes)
      .def("plan", &Network::plan)
      .def("forward", &Network::forward, "ids"_a, "num"_a, "parameters"_a, "gradient_threshold"_a,
           "most_listed"_a, "seed"_a, "step"_a, "state"_a, "result"_a)
      .def("gradients", &Network::gradients, "ids"_a, "num"_a, "parameters"_a, "state"_a, "upstream"_a,
           "of_counts"_a, "parameter_gradients"_a)
      .def("count_hidden", &Network::count_hidden, "state"_a, "counts"_a)
      .def("counts", &Network::counts, "state"_a);
}

}  // namespace

void bind_spiking(nb::module_& m) {
  bind_network(m);
  nb::class_<Neuron>(m, "Neuron", "The behaviour of a spiking neuron in a step.")
      .def(
          "__init__",
          [](Neuron* self, bool spikes, bool synaptic, const std::string& reset,
             const std::string& reset_gradient, bool fires_at_threshold, const std::string& surrogate,
             float slope, float scale, float gain) {
            new (self) Neuron(neuron_of(spikes, synaptic, reset, reset_gradient, fires_at_threshold,
                                        surrogate, slope, scale, gain));
          },
          "spikes"_a, "synaptic"_a, "reset"_a, "reset_gradient"_a, "fires_at_threshold"_a, "surrogate"_a,
          "slope"_a, "scale"_a, "gain"_a);
  nb::class_<SpikingNeurons>(
      m, "SpikingNeurons",
      "Neurons that take currents [steps, batch, neurons], and their gradients. Safe to "
      "call from several threads.")
      .def(
          "__init__",
          [](SpikingNeurons* self, const Neuron& neuron, uint32_t neurons, uint32_t steps, uint32_t batch,
             uint32_t recurrence, bool after_reset) {
            new (self) SpikingNeurons(
                neuron, neurons, steps, batch,
                {.recurrence = static_cast<Recurrence>(recurrence), .after_reset = after_reset});
          },
          "neuron"_a, "neurons"_a, "steps"_a, "batch"_a, "recurrence"_a = 0, "after_reset"_a = false)
      .def("forward", forward, "inputs"_a, "results"_a,
           "Addresses of currents, dynamics, recurrent weights and initial states; of spikes, synaptic "
           "currents, potentials and membranes.")
      .def("gradients", gradients, "inputs"_a, "upstream"_a, "gradients"_a,
           "Addresses of the inputs; of potentials, synaptic currents and the gradients of the results; of "
           "the gradients of currents, dynamics, recurrent weights and initial states.");
}

}  // namespace tessera::python
