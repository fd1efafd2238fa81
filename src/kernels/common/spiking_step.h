// One step of one spiking neuron, forward and backward, in FP32, for references that go through fields of any
// strides neuron by neuron.
#pragma once

#include <cmath>

#include "kernels/common/spiking_neuron.h"
#include "kernels/common/spiking_surrogate.h"

namespace tessera::kernels {

inline float at(const program::FieldView& field, int64_t row, int64_t col) {
  return load<float>(address_of(field, row, col));
}
/// An element of an optional field.
inline float or_zero(const program::FieldView& field, int64_t row, int64_t col) {
  return field.empty() ? 0 : at(field, row, col);
}
inline void set(const program::FieldView& field, int64_t row, int64_t col, float x) {
  if (!field.empty()) store(address_of(field, row, col), x);
}
inline void add(const program::FieldView& field, int64_t row, int64_t col, float x) {
  if (!field.empty()) set(field, row, col, at(field, row, col) + x);
}

struct SpikingDynamics {
  float decay = 0;
  float current_decay = 0;
  float threshold = 0;

  /// The dynamics of neuron n, from a field of three rows.
  static SpikingDynamics of(const program::FieldView& field, uint32_t n) {
    return {at(field, 0, n), at(field, 1, n), at(field, 2, n)};
  }
};

/// The state of a neuron between steps.
struct SpikingState {
  float v = 0;
  float current = 0;
  float adaptation = 0;
};

/// The results of a step, besides the state.
struct SpikingAdvance {
  float u = 0;
  float distance = 0;  ///< of u, minus the adaptation, from the threshold
  bool fires = false;
  bool passes = false;  ///< does not fire, but passes a gradient
};

/// Advances a neuron by a step, given the sum x of the weights of spikes, and whether it fired in the step
/// before.
inline SpikingAdvance advance(const SpikingNeuron& n, const SpikingDynamics& d, float gradient_threshold,
                              float x, bool fired_before, SpikingState& state) {
  if (n.synaptic) x = state.current = std::fma(d.current_decay, state.current, x);
  float u = std::fma(d.decay, state.v, n.gain * x);
  if (n.reset == Reset::late_zero && fired_before) u = 0;
  if (n.reset == Reset::late_subtract && fired_before) u -= d.threshold;
  state.v = u;
  if (!n.spikes) return {u, 0, false, false};
  float y = u;
  if (n.adaptive) {
    state.adaptation = std::fma(n.adaptation_decay, state.adaptation, fired_before ? 1.0F : 0.0F);
    y = std::fma(-n.adaptation_strength, state.adaptation, u);
  }
  const bool fires = n.fires_at_threshold ? y >= d.threshold : y > d.threshold;
  const float distance = y - d.threshold;
  if (fires && n.reset == Reset::zero) state.v = 0;
  if (fires && n.reset == Reset::subtract) state.v = u - d.threshold;
  const bool passes = n.mask == GradientMask::above ? y > gradient_threshold
                                                    : std::abs(distance) < d.threshold - gradient_threshold;
  return {u, distance, fires, passes && !fires};
}

/// The surrogate of a listed neuron, 0 for spikes outside the mask.
inline float masked_derivative(const SpikingNeuron& n, float threshold, float gradient_threshold,
                               float distance) {
  const float margin = threshold - gradient_threshold;
  const bool passes =
      n.mask == GradientMask::above ? margin > 0 || distance > -margin : std::abs(distance) < margin;
  return passes ? derivative_of(n.surrogate, distance) : 0;
}

/// Gradients that a neuron passes to the previous step.
struct SpikingCarried {
  float u = 0;
  float current = 0;
  float adaptation = 0;
};

/// The values of the forward pass that a backward step reads; values on which the neuron's gradients do not
/// depend are 0.
struct SpikingSeen {
  float derivative = 0;  ///< surrogate derivative of the spike, 0 if it is not listed
  bool fired = false;
  bool fired_before = false;
  float u = 0;
  float u_before = 0;  ///< u of the step before
  float current_before = 0;
};

/// Gradients by a step's results from outside the layer, besides the spike's.
struct SpikingUpstream {
  float v = 0;  ///< of the potential after the reset
  float u = 0;
  float current = 0;
};

struct SpikingStepGradients {
  float x = 0;  ///< of the sum of weights
  SpikingDynamics dynamics = {};
};

/// Gradients of a step from the gradient `ds` of the spike, or of the potential of a neuron without spikes.
inline SpikingStepGradients differentiate(const SpikingNeuron& n, const SpikingDynamics& d, float ds,
                                          const SpikingSeen& seen, SpikingCarried& carried,
                                          const SpikingUpstream& upstream = {}) {
  SpikingStepGradients g;
  const bool gated = n.gates() && seen.fired;
  const float dv = (gated && n.is_late() ? 0 : d.decay * carried.u) + upstream.v;
  float du = (gated && !n.is_late() ? 0 : dv) + upstream.u;
  if (!n.spikes) du += ds;
  if (n.adaptive) ds += carried.adaptation;
  if (n.attaches() && n.reset == Reset::zero) ds -= seen.u * dv;
  if (n.attaches() && n.reset == Reset::subtract) ds -= d.threshold * dv;
  if (n.attaches() && n.reset == Reset::late_subtract) ds -= d.threshold * carried.u;
  if (n.reset == Reset::subtract && seen.fired) g.dynamics.threshold -= dv;
  if (n.reset == Reset::late_subtract && seen.fired) g.dynamics.threshold -= carried.u;
  if (n.spikes) {
    const float delta = seen.derivative * ds;
    du += delta;
    g.dynamics.threshold -= delta;
    carried.adaptation = n.adaptation_decay * carried.adaptation - n.adaptation_strength * delta;
  }
  const float dbase = n.gates() && n.reset == Reset::late_zero && seen.fired_before ? 0 : du;
  float v_before = seen.u_before;
  if (n.reset == Reset::zero && seen.fired_before) v_before = 0;
  if (n.reset == Reset::subtract && seen.fired_before) v_before -= d.threshold;
  g.dynamics.decay = dbase * v_before;
  g.x = n.gain * dbase;
  if (n.synaptic) {
    g.x += d.current_decay * carried.current + upstream.current;
    g.dynamics.current_decay = g.x * seen.current_before;
  }
  carried.u = du;
  carried.current = g.x;
  return g;
}

}  // namespace tessera::kernels
