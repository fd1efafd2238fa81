// Spiking layers over whole sequences on hosts: one vertex is one core's samples.
//
// Spikes are lists: of step t and sample b, ids[t, b · capacity + i] for i < num[t, 2b] are the neurons that
// fired, those up to num[t, 2b + 1] did not fire but pass a gradient. Both are sorted; what lies beyond is
// unspecified. Weights are panels: row k · sources + j has those from source j to the neurons from k · width
// on, and zeros beyond the last; sources are the inputs, and in a recurrent layer then its own neurons.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/codelet_list.h"
#include "kernels/common/spiking_neuron.h"

namespace tessera::kernels {

/// Lists, or potentials of a layer without spikes, from lists of inputs. f32; ids u16, num, control and
/// dropped u32, resets u8.
/// - dynamics: 3 × neurons: decays, decays of currents, thresholds
/// - control: 1 row, see spiking_control; gradient_threshold: ϑ_grad
/// - surrogate: derivatives of the listed neurons
/// - resets: who fired, listed or not, a bit each, those of sample b from byte b · ⌈neurons / 8⌉ on
/// - potentials, currents: u and i, those of sample b from column b · neurons on
/// - dropped: samples × 2: spikes, and neurons that only pass a gradient, for which there was no room
#define TESSERA_SPIKING_FORWARD_FIELDS(X)                         \
  X(in_ids)                                                       \
  X(in_num)                                                       \
  X(weight)                                                       \
  X(dynamics)                                                     \
  X(control)                                                      \
  X(gradient_threshold)                                           \
  X(ids, .access = program::Access::out, .optional = true)        \
  X(num, .access = program::Access::out, .optional = true)        \
  X(surrogate, .access = program::Access::out, .optional = true)  \
  X(resets, .access = program::Access::out, .optional = true)     \
  X(potentials, .access = program::Access::out, .optional = true) \
  X(currents, .access = program::Access::out, .optional = true)   \
  X(dropped, .access = program::Access::out, .optional = true)    \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)

/// Gradients of the inputs and the parameters, these summed over this vertex's samples. All are written
/// without being read; an empty one is not computed. It reads resets where they matter to a gradient,
/// potentials for those of decays and through resets to zero, currents for that of their decay.
/// - upstream: the gradient of each listed neuron, or of each potential of a layer without spikes
/// - din: that of each listed input
/// - ddynamics: of dynamics, summed over the samples
#define TESSERA_SPIKING_GRADIENTS_FIELDS(X)                      \
  X(in_ids)                                                      \
  X(in_num)                                                      \
  X(weight)                                                      \
  X(dynamics)                                                    \
  X(ids, .optional = true)                                       \
  X(num, .optional = true)                                       \
  X(surrogate, .optional = true)                                 \
  X(resets, .optional = true)                                    \
  X(potentials, .optional = true)                                \
  X(currents, .optional = true)                                  \
  X(upstream)                                                    \
  X(din, .access = program::Access::out, .optional = true)       \
  X(dweight, .access = program::Access::out)                     \
  X(ddynamics, .access = program::Access::out, .optional = true) \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)

/// Rooms of lists per step and sample; delay; a Neuron (spiking_params()); the random numbers' operation and
/// the number of the first sample; for the cost, listed entries per step and sample that are expected of the
/// inputs and of the layer.
#define TESSERA_SPIKING_PARAMS(X) \
  X(in_capacity)                  \
  X(capacity)                     \
  X(delay)                        \
  X(kinds)                        \
  X(slope)                        \
  X(scale)                        \
  X(gain)                         \
  X(adaptation_decay)             \
  X(adaptation_strength)          \
  X(operation)                    \
  X(first_sample)                 \
  X(expected_in)                  \
  X(expected)

#define TESSERA_SPIKING_CODELETS(X)                                                                       \
  X(spiking_forward, TESSERA_SPIKING_FORWARD_FIELDS, TESSERA_SPIKING_PARAMS, spiking_forward_simd, 16384) \
  X(spiking_gradients, TESSERA_SPIKING_GRADIENTS_FIELDS, TESSERA_SPIKING_PARAMS, spiking_gradients_simd,  \
    16384)

TESSERA_POSITIONS(spiking_param, TESSERA_SPIKING_PARAMS)
TESSERA_DECLARE_FAMILY(spiking, TESSERA_SPIKING_CODELETS)
TESSERA_SPIKING_CODELETS(TESSERA_DECLARE_FUNCTIONS)

/// Sizes that scratch memory depends on.
struct SpikingShape {
  uint32_t steps = 0;
  uint32_t batch = 0;
  uint32_t inputs = 0;
  uint32_t neurons = 0;
  uint32_t in_capacity = 0;
  uint32_t capacity = 0;
  bool recurrent = false;

  uint32_t sources() const { return inputs + (recurrent ? neurons : 0); }
};

/// Neurons of a panel of weights: 64, or of a smaller layer all, in whole cache lines.
uint32_t spiking_panel_width(uint32_t neurons);
/// Rows of the panels.
uint32_t spiking_panel_rows(const SpikingShape& shape);

/// Floats of scratch.
size_t spiking_forward_scratch(const SpikingShape& shape);
size_t spiking_gradients_scratch(const SpikingShape& shape);

}  // namespace tessera::kernels
