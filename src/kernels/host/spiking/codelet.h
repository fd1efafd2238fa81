// Spiking layers over whole sequences on hosts: one vertex is one core's samples.
//
// Spikes are lists: of step t and sample b, ids[t, b · capacity + i] for i < num[t, 2b] are the neurons that
// fired; the further neurons up to num[t, 2b + 1] did not fire but pass a gradient. Both parts are sorted;
// entries beyond them are unspecified. Weights are stored in panels: row k · sources + j has the weights from
// source j to the neurons from k · width on, with zeros beyond the last neuron; sources are the inputs,
// followed in a recurrent layer by its own neurons.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/codelet_list.h"
#include "kernels/common/spiking_neuron.h"

namespace tessera::kernels {

/// Computes lists, or potentials of a layer without spikes, from lists of inputs. f32; ids u16, num, control
/// and dropped u32, resets u8.
/// - dynamics: 3 × neurons: decays, decays of currents, thresholds
/// - control: 1 row, see spiking_control; gradient_threshold: ϑ_grad
/// - surrogate: derivatives of the listed neurons
/// - resets: a bit per neuron, set if it fired, listed or not; bits of sample b from byte b · ⌈neurons / 8⌉
///   on
/// - potentials, currents: u and i, with sample b from column b · neurons on
/// - dropped: samples × 2: numbers of spikes, and of neurons that only pass a gradient, beyond the lists'
///   capacity
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

/// Computes gradients of the inputs and of the parameters; parameters' gradients are summed over this
/// vertex's samples. All are written without being read; an empty result is not computed. Reads resets if
/// gradients depend on them, potentials for gradients of decays and through resets to zero, and currents for
/// the gradient of their decay.
/// - upstream: the gradient of each listed neuron, or of each potential of a layer without spikes
/// - din: the gradient of each listed input
/// - ddynamics: the gradient of dynamics, summed over the samples
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

/// Capacities of lists per step and sample; delay; a Neuron (spiking_params()); the random stream's operation
/// and the number of the first sample; for the cost, expected listed entries per step and sample of the
/// inputs and of the layer.
#define TESSERA_SPIKING_PARAMS(X) \
  X(in_capacity)                  \
  X(capacity)                     \
  X(delay)                        \
  TESSERA_NEURON_PARAMS(X)        \
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

/// Sizes on which scratch memory depends.
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

/// Neurons of a panel of weights: 64, or all neurons of a smaller layer, in whole cache lines.
uint32_t spiking_panel_width(uint32_t neurons);
/// Number of rows of all panels.
uint32_t spiking_panel_rows(const SpikingShape& shape);

/// Floats of scratch.
size_t spiking_forward_scratch(const SpikingShape& shape);
size_t spiking_gradients_scratch(const SpikingShape& shape);

}  // namespace tessera::kernels
