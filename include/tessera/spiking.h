// Spiking layers over whole sequences, whose spikes are lists: definitions, and a network of them with the
// gradients of backpropagation through time. FP32, on this computer.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera {

/// What takes the place of the derivative of the step, at x = u − threshold, with slope k.
enum class SurrogateFamily : uint8_t {
  superspike,    ///< 1 / (k|x| + 1)² (Zenke & Ganguli 2018)
  fast_sigmoid,  ///< the same, the derivative of x / (1 + k|x|)
  arctan,        ///< k/2 / (1 + (π/2 · k · x)²)
  triangle,      ///< max(0, 1 − k|x|)
  sigmoid,       ///< k · σ(kx) · (1 − σ(kx))
  boxcar,        ///< k where |x| < 1 / (2k)
};

struct Surrogate {
  SurrogateFamily family = SurrogateFamily::superspike;
  float slope = 10;
  float scale = 1;  ///< factor of the derivative

  bool operator==(const Surrogate&) const = default;
};

/// "superspike", "fast_sigmoid", …
std::string_view name_of(SurrogateFamily family);

/// Which neurons pass a gradient through the step in a time step.
enum class GradientMask : uint8_t {
  above,   ///< u > ϑ_grad
  window,  ///< |u − threshold| < threshold − ϑ_grad
};

/// What a spike does to the membrane potential. With u the potential that is compared with the threshold, s
/// the spike, and v what the next step decays:
enum class Reset : uint8_t {
  none,           ///< v = u
  zero,           ///< v = u · (1 − s)
  subtract,       ///< v = u − threshold · s
  late_zero,      ///< v = u, and the next u, its new input included, is multiplied by 1 − s
  late_subtract,  ///< v = u, and the next u is less by threshold · s
};

/// How gradients pass a reset.
enum class ResetGradient : uint8_t {
  detached,  ///< as if there were none: v = u − stop(u · s)
  gated,     ///< the spike is a constant: v = u · (1 − stop(s))
  attached,  ///< through the spike as well, by its surrogate
};

/// One step of a neuron with the weighted sum x of its spikes in:
///
///   i ← α·i + x      (synaptic; otherwise i = x)
///   u = β·v + gain·i
///   a ← ρ·a + s of the step before   (adaptive; otherwise a = 0)
///   s = [u − κ·a > threshold]
///
/// and v = u after its reset. Without spikes it is a leaky integrator, s = 0. Everything is 0 at first.
struct Neuron {
  bool spikes = true;
  bool synaptic = false;
  bool adaptive = false;
  bool fires_at_threshold = false;  ///< s = [… ≥ threshold]
  Reset reset = Reset::zero;
  ResetGradient reset_gradient = ResetGradient::detached;
  Surrogate surrogate = {};
  GradientMask mask = GradientMask::above;
  float gain = 1;
  float adaptation_decay = 0;     ///< ρ
  float adaptation_strength = 0;  ///< κ

  bool operator==(const Neuron&) const = default;
};

/// Neurons that take the spikes of `inputs` others, and with `recurrent` their own of the step before.
///
/// Parameters, as far as it has them: `weight` [inputs, neurons], `recurrent` [neurons, neurons] from row to
/// column, `decay` β, `current_decay` α and `threshold`, each [1] or [neurons].
struct SpikingLayer {
  uint32_t inputs = 0;
  uint32_t neurons = 0;
  Neuron neuron = {};
  bool recurrent = false;
  uint32_t delay = 0;  ///< steps after which spikes arrive
  bool decay_per_neuron = false;
  bool current_decay_per_neuron = false;
  bool threshold_per_neuron = false;

  bool operator==(const SpikingLayer&) const = default;
};

/// A parameter of a layer.
struct SpikingParameter {
  std::string_view name;
  uint32_t rows = 0;
  uint32_t cols = 0;

  uint64_t elements() const { return uint64_t{rows} * cols; }
};

/// The parameters, in the order in which products take them. Throws UsageError for impossible layers.
std::vector<SpikingParameter> parameters_of(const SpikingLayer& layer);

}  // namespace tessera
