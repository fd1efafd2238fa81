// Spiking layers over whole sequences, with spikes as lists: their definitions, and a network of such layers
// with gradients by backpropagation through time. FP32, on the host.
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

/// The function that replaces the derivative of the step function, at x = u − threshold, with slope k.
enum class SurrogateFamily : uint8_t {
  superspike,    ///< 1 / (k|x| + 1)² (Zenke & Ganguli 2018)
  fast_sigmoid,  ///< equal to superspike: the derivative of x / (1 + k|x|)
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

/// The neurons that pass a gradient through the step function in a time step.
enum class GradientMask : uint8_t {
  above,   ///< u > ϑ_grad
  window,  ///< |u − threshold| < threshold − ϑ_grad
};

/// The effect of a spike on the membrane potential. With u the potential that is compared with the threshold,
/// s the spike, and v the potential that the next step decays:
enum class Reset : uint8_t {
  none,           ///< v = u
  zero,           ///< v = u · (1 − s)
  subtract,       ///< v = u − threshold · s
  late_zero,      ///< v = u, and the next u, its new input included, is multiplied by 1 − s
  late_subtract,  ///< v = u, and the next u is less by threshold · s
};

/// How gradients pass a reset.
enum class ResetGradient : uint8_t {
  detached,  ///< as if there were no reset: v = u − stop(u · s)
  gated,     ///< the spike counts as a constant: v = u · (1 − stop(s))
  attached,  ///< through the spike as well, by its surrogate
};

/// One step of a neuron with the weighted sum x of its spikes in:
///
///   i ← α·i + x      (synaptic; otherwise i = x)
///   u = β·v + gain·i
///   a ← ρ·a + s of the step before   (adaptive; otherwise a = 0)
///   s = [u − κ·a > threshold]
///
/// and v follows from u by the reset. Without spikes (s = 0) the neuron is a leaky integrator. All variables
/// are 0 at first.
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

/// A layer of neurons that take the spikes of `inputs` other neurons, and with `recurrent` also their own
/// spikes of the previous step.
///
/// Parameters, as far as the layer has them: `weight` [inputs, neurons]; `recurrent` [neurons, neurons], from
/// the row's neuron to the column's; and `decay` β, `current_decay` α and `threshold`, each [1] or [neurons].
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

/// Name and shape of a layer's parameter.
struct SpikingParameter {
  std::string_view name;
  uint32_t rows = 0;
  uint32_t cols = 0;

  uint64_t elements() const { return uint64_t{rows} * cols; }
};

/// The parameters of a layer, in the order in which networks take them. Throws UsageError for impossible
/// layers.
std::vector<SpikingParameter> parameters_of(const SpikingLayer& layer);

/// Spikes of whole sequences, as lists. In step t of sample b, the neurons ids[(t · batch + b) · capacity +
/// i] fired for i < num[(t · batch + b) · 2]; the neurons after these, for i < num[(t · batch + b) · 2 + 1],
/// are candidates, which did not fire but pass a gradient. Both parts are sorted; entries beyond them are
/// unspecified.
struct SpikeLists {
  const uint16_t* ids = nullptr;
  const uint32_t* num = nullptr;
  uint32_t capacity = 0;
};

/// Settings that may change from one run to the next.
struct SpikingControl {
  float gradient_threshold = -std::numeric_limits<float>::infinity();  ///< ϑ_grad
  /// Maximum number of neurons listed per step, sample and layer, if it is below the lists' capacity. Lists
  /// prefer spikes to candidates; which of the neurons that do not fit are dropped is random. A dropped spike
  /// still resets its neuron.
  uint32_t most_listed = ~uint32_t{0};
  uint64_t seed = 0;  ///< with `step`, seed of the random choice of dropped neurons
  uint32_t step = 0;
};

/// Sums over a sequence.
struct SpikingCounts {
  uint64_t spikes = 0;      ///< listed
  uint64_t candidates = 0;  ///< listed neurons that did not fire
  uint64_t dropped_spikes = 0;
  uint64_t dropped_candidates = 0;
};

struct SpikingNetworkOptions {
  uint32_t input_capacity = 0;            ///< list entries per step and sample; 0: one for each input
  std::vector<uint32_t> capacities = {};  ///< list entries per step and sample for each layer; none, or 0:
                                          ///< one per neuron
  bool trains = true;                     ///< whether gradients() may follow
  bool learns_dynamics = false;           ///< whether decays and thresholds have gradients, for which all
                                          ///< potentials are stored
  bool input_gradient = false;            ///< whether inputs have gradients
  bool hidden_upstream = false;           ///< whether a loss depends on the spikes of hidden layers
  double expected_input_activity = 0.02;  ///< fraction of inputs, for planning
  double expected_activity = 0.04;        ///< fraction of neurons that are listed, for planning
  uint32_t threads = 0;  ///< 0: one per physical core available to this process, or TESSERA_THREADS
};

/// Bytes of a network's state, or slightly more, as a function of the numbers of steps and samples.
struct SpikingStateSize {
  uint64_t per_step_and_sample = 0;
  uint64_t per_sample = 0;
  uint64_t fixed = 0;
};

/// The state size of a network with these layers. Throws UsageError as SpikingNetwork's constructor does.
SpikingStateSize spiking_state_size(const std::vector<SpikingLayer>& layers,
                                    const SpikingNetworkOptions& options = {});

/// A network of layers in sequence, planned and compiled for one length of sequences and one batch size. It
/// keeps the values that gradients need until the next forward pass, so only one thread may use it at a time.
/// The bits of results depend on plan and instruction set, not on timing.
class SpikingNetwork {
 public:
  /// Throws UsageError for impossible layers or sizes, and unless each layer takes the spikes of the layer
  /// before.
  SpikingNetwork(std::vector<SpikingLayer> layers, uint32_t steps, uint32_t batch,
                 const SpikingNetworkOptions& options = {});
  ~SpikingNetwork();
  SpikingNetwork(SpikingNetwork&&) noexcept;
  SpikingNetwork& operator=(SpikingNetwork&&) noexcept;

  /// Computes the spikes and potentials of all layers. `parameters` are as parameters_of() lists them, one
  /// layer after the other. Throws UsageError for a wrong number of parameters, a null array, and lists that
  /// exceed their capacity or name inputs that do not exist.
  ///
  /// Results, and the values that gradients need, are kept in the network, or in `state` if given: then
  /// several threads may call the network, and several forward passes may await their gradients.
  void forward(const SpikeLists& in, std::span<const float* const> parameters,
               const SpikingControl& control = {}, std::byte* state = nullptr);

  /// Computes gradients after a forward pass with the same inputs and parameters. `upstream` is the loss's
  /// gradient with respect to each potential of the last layer, [steps, batch, neurons], or if that layer
  /// spikes, to each entry of its lists, [steps, batch, capacity]. `hidden_upstream` has such gradients with
  /// respect to the spikes of each hidden layer. Writes one gradient per parameter, in the order of the
  /// parameters (without `learns_dynamics`, only per weight), and to `input_gradient`, if there are input
  /// gradients, one number per entry of the inputs' lists.
  void gradients(const SpikeLists& in, std::span<const float* const> parameters, const float* upstream,
                 std::span<float* const> parameter_gradients, float* input_gradient = nullptr,
                 const std::byte* state = nullptr, std::span<const float* const> hidden_upstream = {});

  size_t layers() const;
  const SpikingLayer& layer(size_t index) const;
  uint32_t steps() const;
  uint32_t batch() const;
  /// Bytes of a `state` array, which must begin on a cache line.
  uint64_t state_bytes() const;
  /// Spikes of a layer, and their counts, in the last forward pass, or in the pass that wrote `state`.
  SpikeLists spikes(size_t layer, const std::byte* state = nullptr) const;
  SpikingCounts counts(size_t layer, const std::byte* state = nullptr) const;
  /// Potentials u of a layer, [steps, batch, neurons], if they are stored; they are for a layer without
  /// spikes.
  std::span<const float> potentials(size_t layer, const std::byte* state = nullptr) const;
  /// Bytes kept from forward() for gradients().
  uint64_t stash_bytes() const;
  /// The plans of the forward and backward pass in readable form.
  std::string plan() const;
  double predicted_seconds() const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

/// The neurons to which a neuron's spike goes in the next step.
enum class Recurrence : uint8_t { none, one_to_one, all_to_all };

struct SpikingNeuronsOptions {
  Recurrence recurrence = Recurrence::none;
  bool after_reset = false;  ///< whether initial potentials are v, after a reset, instead of u
  uint32_t threads = 0;      ///< 0: one per physical core available to this process, or TESSERA_THREADS
};

/// Neurons that take currents, such as a dense layer's results, over whole sequences. Sequences are [steps,
/// batch, neurons]; all arrays are contiguous. May be called from several threads. Copies share the compiled
/// programs.
class SpikingNeurons {
 public:
  struct Inputs {
    const float* currents = nullptr;  ///< not read by gradients()
    const float* dynamics = nullptr;  ///< [3, neurons]: decays of potentials, decays of currents, thresholds
    /// [neurons, neurons] from the row's neuron to the column's, or [neurons] one to one.
    const float* recurrent = nullptr;
    const float* initial = nullptr;  ///< [2, batch, neurons]: potentials and currents; null: zeros
  };
  /// Arrays for results; results whose arrays are null are not computed.
  struct Results {
    float* spikes = nullptr;      ///< 0 or 1
    float* currents = nullptr;    ///< i, of synaptic neurons
    float* potentials = nullptr;  ///< u
    float* membranes = nullptr;   ///< v, after the reset
  };
  /// The potentials of the forward pass (and its currents, if decays have gradients), and the loss's
  /// gradients with respect to the results; a null array stands for zeros.
  struct Upstream {
    const float* potentials = nullptr;
    const float* currents = nullptr;
    const float* of_spikes = nullptr;
    const float* of_currents = nullptr;
    const float* of_potentials = nullptr;
    const float* of_membranes = nullptr;
  };
  /// Arrays for the gradients with respect to the inputs of the same names; all but `currents` may be null.
  /// Gradients of parameters are summed over steps and samples.
  struct Gradients {
    float* currents = nullptr;
    float* dynamics = nullptr;
    float* recurrent = nullptr;
    float* initial = nullptr;
  };

  /// Throws UsageError for impossible neurons and sizes, and for adaptive ones.
  SpikingNeurons(const Neuron& neuron, uint32_t neurons, uint32_t steps, uint32_t batch,
                 const SpikingNeuronsOptions& options = {});

  /// Throw UsageError for arrays that are missing, and for arrays of quantities that these neurons do not
  /// have.
  void forward(const Inputs& in, const Results& results) const;
  void gradients(const Inputs& in, const Upstream& upstream, const Gradients& gradients) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace tessera
