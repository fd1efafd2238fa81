// Spiking neurons as parameters of codelets.
#pragma once

#include <tessera/spiking.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/common/element.h"

namespace tessera::kernels {

/// The parameters of a codelet that describe a neuron, as spiking_params() returns them.
#define TESSERA_NEURON_PARAMS(X) X(kinds) X(slope) X(scale) X(gain) X(adaptation_decay) X(adaptation_strength)

inline constexpr size_t spiking_neuron_params = 6;
struct SpikingNeuronParams {
  int64_t values[spiking_neuron_params];
};

inline SpikingNeuronParams spiking_params(const Neuron& n, bool recurrent) {
  const int64_t kinds = int64_t{n.spikes} | int64_t{n.synaptic} << 1 | int64_t{n.adaptive} << 2 |
                        int64_t{n.fires_at_threshold} << 3 | int64_t{recurrent} << 4 |
                        static_cast<int64_t>(n.mask) << 5 | static_cast<int64_t>(n.reset_gradient) << 6 |
                        static_cast<int64_t>(n.reset) << 8 | static_cast<int64_t>(n.surrogate.family) << 12;
  return {kinds,
          param_of(n.surrogate.slope),
          param_of(n.surrogate.scale),
          param_of(n.gain),
          param_of(n.adaptation_decay),
          param_of(n.adaptation_strength)};
}

/// The neurons of a layer.
struct SpikingNeuron : Neuron {
  bool recurrent = false;

  /// The neurons of a vertex with these parameters; `kinds` is the position of "kinds".
  SpikingNeuron(std::span<const int64_t> params, size_t kinds)
      : SpikingNeuron(params.subspan(kinds).first<spiking_neuron_params>()) {}
  /// The neurons from the result of spiking_params().
  explicit SpikingNeuron(std::span<const int64_t, spiking_neuron_params> params) {
    const auto kinds_of = static_cast<uint64_t>(params[0]);
    spikes = (kinds_of & 1) != 0;
    synaptic = (kinds_of & 2) != 0;
    adaptive = (kinds_of & 4) != 0;
    fires_at_threshold = (kinds_of & 8) != 0;
    recurrent = (kinds_of & 16) != 0;
    mask = static_cast<GradientMask>(kinds_of >> 5 & 1);
    reset_gradient = static_cast<ResetGradient>(kinds_of >> 6 & 3);
    reset = static_cast<Reset>(kinds_of >> 8 & 15);
    surrogate = {static_cast<SurrogateFamily>(kinds_of >> 12 & 15), float_of(params[1]), float_of(params[2])};
    gain = float_of(params[3]);
    adaptation_decay = float_of(params[4]);
    adaptation_strength = float_of(params[5]);
    if (!spikes) reset = Reset::none;
  }

  bool is_late() const { return reset == Reset::late_zero || reset == Reset::late_subtract; }
  bool gates() const {
    return (reset == Reset::zero || reset == Reset::late_zero) && reset_gradient != ResetGradient::detached;
  }
  bool attaches() const { return reset != Reset::none && reset_gradient == ResetGradient::attached; }
};

/// Columns of a field "control", u32: maximum number of listed neurons; seed and step of the random stream.
/// Further columns are the numbers of the sub-stream (base::seed_of_substream).
namespace spiking_control {
enum : size_t { limit, seed_low, seed_high, step, count };
}

}  // namespace tessera::kernels
