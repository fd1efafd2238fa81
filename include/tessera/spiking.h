// Spiking layers over whole sequences, whose spikes are lists: definitions, and a network of them with the
// gradients of backpropagation through time. FP32, on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
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

/// Spikes of whole sequences, as lists: of step t and sample b, ids[(t · batch + b) · capacity + i] for i <
/// num[(t · batch + b) · 2] are the neurons that fired, those up to num[… + 1] did not fire, but pass a
/// gradient. Both parts are sorted; what lies beyond is unspecified.
struct SpikeLists {
  const uint16_t* ids = nullptr;
  const uint32_t* num = nullptr;
  uint32_t capacity = 0;
};

/// What may change from one run to the next.
struct SpikingControl {
  float gradient_threshold = -std::numeric_limits<float>::infinity();  ///< ϑ_grad
  /// Neurons listed per step and sample and layer, if that is less than the lists have room for. Where there
  /// are more, spikes come first; of what does not fit, chance decides what is dropped. A dropped spike still
  /// resets its neuron.
  uint32_t most_listed = ~uint32_t{0};
  uint64_t seed = 0;  ///< of the random numbers for that, with the step
  uint32_t step = 0;
};

/// Sums over a sequence.
struct SpikingCounts {
  uint64_t spikes = 0;      ///< listed
  uint64_t candidates = 0;  ///< listed without having fired
  uint64_t dropped_spikes = 0;
  uint64_t dropped_candidates = 0;
};

struct SpikingNetworkOptions {
  uint32_t input_capacity = 0;            ///< room per step and sample; 0: for all inputs
  std::vector<uint32_t> capacities = {};  ///< of each layer; none, or 0: for all neurons
  bool trains = true;                     ///< whether gradients() may follow
  bool learns_dynamics = false;           ///< whether decays and thresholds have gradients, which takes all
                                          ///< potentials
  bool input_gradient = false;            ///< whether inputs have
  bool hidden_upstream = false;           ///< whether a loss depends on the spikes of hidden layers
  double expected_input_activity = 0.02;  ///< fraction of inputs, for planning
  double expected_activity = 0.04;        ///< fraction of neurons that are listed, for planning
  uint32_t threads = 0;  ///< 0: one per physical core available to this process, or TESSERA_THREADS
};

/// Bytes of the state of a network, for any number of steps and samples; or a little more.
struct SpikingStateSize {
  uint64_t per_step_and_sample = 0;
  uint64_t per_sample = 0;
  uint64_t fixed = 0;
};

/// Throws UsageError as a network of these layers does.
SpikingStateSize spiking_state_size(const std::vector<SpikingLayer>& layers,
                                    const SpikingNetworkOptions& options = {});

/// Layers one after the other, planned and compiled for sequences of one length and a batch of one size. It
/// keeps what gradients need from one forward pass to the next, so one thread uses it at a time. The bits of
/// results depend on plan and instruction set, not on timing.
class SpikingNetwork {
 public:
  /// Throws UsageError for impossible layers or sizes, and unless each layer takes the spikes of that before.
  SpikingNetwork(std::vector<SpikingLayer> layers, uint32_t steps, uint32_t batch,
                 const SpikingNetworkOptions& options = {});
  ~SpikingNetwork();
  SpikingNetwork(SpikingNetwork&&) noexcept;
  SpikingNetwork& operator=(SpikingNetwork&&) noexcept;

  /// Parameters are those of the layers, one layer after the other, as parameters_of() lists them. Throws
  /// UsageError for another number of them, a null array, or lists that are longer than their room or name
  /// inputs that do not exist.
  ///
  /// What gradients and results need is kept in the network, or in `state`: then several threads may call the
  /// network, and several forward passes may await their gradients.
  void forward(const SpikeLists& in, std::span<const float* const> parameters,
               const SpikingControl& control = {}, std::byte* state = nullptr);

  /// Gradients after a forward pass with the same inputs and parameters. `upstream` is that of each potential
  /// of the last layer [steps, batch, neurons], or if it spikes of each place of its lists [steps, batch,
  /// capacity]. Gradients are those of all parameters, or unless decays and thresholds learn of all weights,
  /// in the order of the parameters; those of inputs, if there are any, one for each place of their lists.
  /// `hidden_upstream` are those of the spikes of each hidden layer, as of the last.
  void gradients(const SpikeLists& in, std::span<const float* const> parameters, const float* upstream,
                 std::span<float* const> parameter_gradients, float* input_gradient = nullptr,
                 const std::byte* state = nullptr, std::span<const float* const> hidden_upstream = {});

  size_t layers() const;
  const SpikingLayer& layer(size_t index) const;
  uint32_t steps() const;
  uint32_t batch() const;
  /// Bytes of a state, which begins on a cache line.
  uint64_t state_bytes() const;
  /// Of the last forward pass, or that which wrote the state.
  SpikeLists spikes(size_t layer, const std::byte* state = nullptr) const;
  SpikingCounts counts(size_t layer, const std::byte* state = nullptr) const;
  /// u of a layer [steps, batch, neurons], if it is stored: that of a layer without spikes is.
  std::span<const float> potentials(size_t layer, const std::byte* state = nullptr) const;
  /// Bytes kept from forward() for gradients().
  uint64_t stash_bytes() const;
  /// The plans of both passes in readable form.
  std::string plan() const;
  double predicted_seconds() const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

/// To which neurons a spike goes in the next step.
enum class Recurrence : uint8_t { none, one_to_one, all_to_all };

struct SpikingNeuronsOptions {
  Recurrence recurrence = Recurrence::none;
  bool after_reset = false;  ///< whether initial potentials are those after a reset
  uint32_t threads = 0;      ///< 0: one per physical core available to this process, or TESSERA_THREADS
};

/// Neurons that take currents, such as a dense layer's results, in whole sequences. Sequences are [steps,
/// batch, neurons]; all arrays are contiguous. May be called from several threads. Copies share what is
/// compiled.
class SpikingNeurons {
 public:
  struct Inputs {
    const float* currents = nullptr;   ///< gradients do not read them
    const float* dynamics = nullptr;   ///< [3, neurons]: decays, decays of currents, thresholds
    const float* recurrent = nullptr;  ///< [neurons, neurons] from row to column, or [neurons] one to one
    const float* initial = nullptr;    ///< [2, batch, neurons]: potentials and currents; null: zeros
  };
  /// Null ones are not computed.
  struct Results {
    float* spikes = nullptr;      ///< 0 or 1
    float* currents = nullptr;    ///< i, of synaptic neurons
    float* potentials = nullptr;  ///< u
    float* membranes = nullptr;   ///< v, after the reset
  };
  /// Gradients of the results, zeros where they are null, and the potentials (and currents, if decays learn)
  /// of the forward pass.
  struct Upstream {
    const float* potentials = nullptr;
    const float* currents = nullptr;
    const float* of_spikes = nullptr;
    const float* of_currents = nullptr;
    const float* of_potentials = nullptr;
    const float* of_membranes = nullptr;
  };
  /// Of the inputs of the same names; all but that of currents may be null. Gradients of parameters are
  /// summed over steps and samples.
  struct Gradients {
    float* currents = nullptr;
    float* dynamics = nullptr;
    float* recurrent = nullptr;
    float* initial = nullptr;
  };

  /// Throws UsageError for impossible neurons and sizes, and for adaptive ones.
  SpikingNeurons(const Neuron& neuron, uint32_t neurons, uint32_t steps, uint32_t batch,
                 const SpikingNeuronsOptions& options = {});

  /// Throw UsageError for arrays that are missing, and for those of what such neurons do not have.
  void forward(const Inputs& in, const Results& results) const;
  void gradients(const Inputs& in, const Upstream& upstream, const Gradients& gradients) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace tessera
