// Spiking neurons that take currents. Callers have checked their arrays and pass addresses, 0 for absent
// ones.
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <tessera/error.h>
#include <tessera/spiking.h>

#include <array>
#include <string>

#include "bindings.h"

namespace nb = nanobind;

namespace tessera::python {
namespace {

using namespace nb::literals;

template <class T>
T* pointer(uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

template <class Kind, size_t n>
Kind named(const char* what, const std::string& name, const std::array<const char*, n>& names) {
  std::string known;
  for (size_t i = 0; i < n; ++i) {
    if (name == names[i]) return static_cast<Kind>(i);
    known += (i > 0 ? ", " : "") + std::string(names[i]);
  }
  throw UsageError(fmt::format("unknown {} '{}': use one of {}", what, name, known));
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
void forward(const SpikingNeurons& neurons, const std::array<uintptr_t, 4>& in,
             const std::array<uintptr_t, 4>& results) {
  const nb::gil_scoped_release released;
  neurons.forward({pointer<const float>(in[0]), pointer<const float>(in[1]), pointer<const float>(in[2]),
                   pointer<const float>(in[3])},
                  {pointer<float>(results[0]), pointer<float>(results[1]), pointer<float>(results[2]),
                   pointer<float>(results[3])});
}

void gradients(const SpikingNeurons& neurons, const std::array<uintptr_t, 4>& in,
               const std::array<uintptr_t, 6>& upstream, const std::array<uintptr_t, 4>& of) {
  const nb::gil_scoped_release released;
  neurons.gradients(
      {pointer<const float>(in[0]), pointer<const float>(in[1]), pointer<const float>(in[2]),
       pointer<const float>(in[3])},
      {pointer<const float>(upstream[0]), pointer<const float>(upstream[1]),
       pointer<const float>(upstream[2]), pointer<const float>(upstream[3]),
       pointer<const float>(upstream[4]), pointer<const float>(upstream[5])},
      {pointer<float>(of[0]), pointer<float>(of[1]), pointer<float>(of[2]), pointer<float>(of[3])});
}

}  // namespace

void bind_spiking(nb::module_& m) {
  nb::class_<Neuron>(m, "Neuron", "What a spiking neuron does in a step.")
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
