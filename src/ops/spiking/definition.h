// The float64 reference of spiking layers: dense backpropagation through time, as plainly as it can be
// written.
#pragma once

#include <tessera/spiking.h>

#include <cstdint>
#include <vector>

namespace tessera::ops {

/// An array of [steps, batch, features].
struct Sequence {
  Sequence() = default;
  Sequence(uint32_t step_count, uint32_t samples, uint32_t feature_count, double value = 0)
      : steps(step_count),
        batch(samples),
        features(feature_count),
        values(uint64_t{step_count} * samples * feature_count, value) {}

  double& operator()(uint32_t t, uint32_t b, uint32_t f) {
    return values[(uint64_t{t} * batch + b) * features + f];
  }
  double operator()(uint32_t t, uint32_t b, uint32_t f) const {
    return values[(uint64_t{t} * batch + b) * features + f];
  }
  bool empty() const { return values.empty(); }

  uint32_t steps = 0;
  uint32_t batch = 0;
  uint32_t features = 0;
  std::vector<double> values;
};

/// Parameters of a layer, or their gradients; parameters that the layer does not have are empty.
struct SpikingValues {
  std::vector<double> weight, recurrent, decay, current_decay, threshold;
};

struct SpikingSettings {
  double gradient_threshold = -1e300;  ///< ϑ_grad
  /// If above 0, the step and its surrogate are replaced by s = 1 / (1 + exp(−slope · x)) and its derivative,
  /// so that gradients are exact if resets are attached.
  double smooth_slope = 0;
};

/// The quantities of a layer in a sequence. `emitted` are its spikes without those that the mask drops.
struct SpikingTrace {
  Sequence u, v, current, distance, spikes, emitted;
};

/// Runs a layer on spikes `in`, or any other numbers. `mask`, if not empty, is 1 for neurons that are listed
/// and 0 for others, which pass neither spike nor surrogate gradient.
SpikingTrace run_layer(const SpikingLayer& layer, const SpikingValues& values,
                       const SpikingSettings& settings, const Sequence& in, const Sequence& mask = {});

/// Gradients of a layer's results; an empty sequence stands for zeros.
struct SpikingUpstream {
  Sequence spikes;  ///< gradient of `emitted`
  Sequence before;  ///< gradient of u, the potential before the reset
  Sequence after;   ///< gradient of v, the potential after the reset
  Sequence current = {};
};

struct SpikingGradients {
  Sequence in;
  SpikingValues values;
};

SpikingGradients differentiate_layer(const SpikingLayer& layer, const SpikingValues& values,
                                     const SpikingSettings& settings, const Sequence& in,
                                     const SpikingTrace& trace, const SpikingUpstream& upstream,
                                     const Sequence& mask = {});

/// The surrogate derivative at a distance from the threshold.
double surrogate_derivative(const Surrogate& surrogate, double x);

}  // namespace tessera::ops
