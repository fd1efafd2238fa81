// The float64 reference of spiking layers: dense backpropagation through time, as plainly as it can be
// written.
#pragma once

#include <tessera/spiking.h>

#include <cstdint>
#include <vector>

namespace tessera::ops {

/// [steps, batch, features] in one array.
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

/// Parameters of a layer, or their gradients; those that it does not have are empty.
struct SpikingValues {
  std::vector<double> weight, recurrent, decay, current_decay, threshold;
};

struct SpikingSettings {
  double gradient_threshold = -1e300;  ///< ϑ_grad
  /// If above 0, s = 1 / (1 + exp(−slope · x)) with its own derivative instead of the step and its surrogate,
  /// so that gradients are those of the function, if resets are attached.
  double smooth_slope = 0;
};

/// What a layer did in a sequence. `emitted` are its spikes less those that `kept` leaves out.
struct SpikingTrace {
  Sequence u, v, current, distance, spikes, emitted;
};

/// Runs a layer; `in` are the spikes, or any other numbers, that it takes. `kept`, if not empty, is 1 for
/// neurons that are listed and 0 for those that are not, which pass neither spike nor surrogate gradient.
SpikingTrace run_layer(const SpikingLayer& layer, const SpikingValues& values,
                       const SpikingSettings& settings, const Sequence& in, const Sequence& mask = {});

/// Gradients of the results of a layer; an empty one is 0.
struct SpikingUpstream {
  Sequence spikes;  ///< of `emitted`
  Sequence before;  ///< of u, the potential before its reset
  Sequence after;   ///< of v, that after it
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

/// The surrogate of a distance from the threshold.
double surrogate_derivative(const Surrogate& surrogate, double x);

}  // namespace tessera::ops
