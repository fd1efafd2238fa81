// The neurons of a spiking layer on one tile, one step at a time, for all samples of a batch.
//
// Lists are as in <tessera/spiking.h>, for one step of a whole layer: ids 1 × (samples · capacity), u16,
// and num 1 × (samples · 2), u32. A tile has the neurons [first, first + neurons); values of its neurons are
// rows of samples · neurons. A pass whose time is 0 does nothing: layers that pass spikes on within a pass of
// a loop begin and end at different passes.
#pragma once

#include "kernels/common/codelet_list.h"
#include "kernels/common/spiking_neuron.h"

namespace tessera::kernels {

/// Adds the rows of weights of the neurons that fired, and computes a step of each neuron.
/// - weight: inputs × neurons; recurrent: all neurons of the layer × neurons; f32 or f16
/// - dynamics: 4 × neurons: decays, decays of currents, thresholds, ϑ_grad
/// - time: 1 × 1, u32: the number of the step, from 1, or 0
/// - state: rows of potentials, currents and adaptations, where neurons have them
/// - flags: samples × neurons, u8: 2 fired, 1 passes a gradient; on entry, the flags of the previous step
/// - surrogate, resets (u8: 1 fired), potentials, currents: results that gradients read
#define TESSERA_SPIKING_TILE_FORWARD_FIELDS(X)                    \
  X(in_ids, .costed = true)                                       \
  X(in_num, .costed = true)                                       \
  X(own_ids, .optional = true, .costed = true)                    \
  X(own_num, .optional = true, .costed = true)                    \
  X(weight, .alignment = 8)                                       \
  X(recurrent, .alignment = 8, .optional = true)                  \
  X(dynamics)                                                     \
  X(time, .costed = true)                                         \
  X(state, .access = program::Access::inout)                      \
  X(flags, .access = program::Access::inout, .optional = true)    \
  X(surrogate, .access = program::Access::out, .optional = true)  \
  X(resets, .access = program::Access::out, .optional = true)     \
  X(potentials, .access = program::Access::out, .optional = true) \
  X(currents, .access = program::Access::out, .optional = true)

/// Makes the lists of a step from the flags of all neurons, equal to those that hosts make.
/// - flags: samples × all neurons of the layer
/// - control: 1 row, u32, as on hosts (spiking_control)
/// - dropped: samples × 2, u32, added to
#define TESSERA_SPIKING_TILE_LISTS_FIELDS(X) \
  X(flags, .costed = true)                   \
  X(control)                                 \
  X(time, .costed = true)                    \
  X(ids, .access = program::Access::out)     \
  X(num, .access = program::Access::out)     \
  X(dropped, .access = program::Access::inout)

/// Differentiates a step of each neuron. ddynamics is summed over samples and steps.
/// - upstream: the gradient of each entry of the lists; in a layer without spikes, of each potential
/// - resets, potentials: two rows, of the previous step and of this step; currents: of the previous step
/// - state: three rows of gradients that the next step passes back
/// - dx: the gradients of the sums of weights
#define TESSERA_SPIKING_TILE_BACKWARD_FIELDS(X)                    \
  X(own_ids, .optional = true, .costed = true)                     \
  X(own_num, .optional = true, .costed = true)                     \
  X(upstream, .optional = true)                                    \
  X(dynamics)                                                      \
  X(time, .costed = true)                                          \
  X(surrogate, .optional = true)                                   \
  X(resets, .optional = true)                                      \
  X(potentials, .optional = true)                                  \
  X(currents, .optional = true)                                    \
  X(state, .access = program::Access::inout)                       \
  X(ddynamics, .access = program::Access::inout, .optional = true) \
  X(dx, .access = program::Access::out)

/// Computes the gradients of the weights of neurons that fired, and the gradients of listed neurons.
/// - dweight: is added to; din: this tile's part of the gradient of each list entry, 0 beyond the lists
#define TESSERA_SPIKING_TILE_ROWS_FIELDS(X)                    \
  X(ids, .costed = true)                                       \
  X(num, .costed = true)                                       \
  X(weight, .alignment = 8, .optional = true)                  \
  X(dx)                                                        \
  X(time, .costed = true)                                      \
  X(dweight, .access = program::Access::inout, .alignment = 8) \
  X(din, .access = program::Access::out, .optional = true)

/// Capacities of lists per step and sample; the first neuron; a Neuron (spiking_params()); for the cost,
/// expected listed entries per sample of the inputs and of the layer.
#define TESSERA_SPIKING_TILE_PARAMS(X) \
  X(in_capacity)                       \
  X(capacity)                          \
  X(first)                             \
  TESSERA_NEURON_PARAMS(X)             \
  X(expected_in)                       \
  X(expected)
/// The capacity of the lists, the random stream's operation, the number of the first sample, and the expected
/// listed entries.
#define TESSERA_SPIKING_TILE_LISTS_PARAMS(X) X(capacity) X(operation) X(first_sample) X(expected)
#define TESSERA_SPIKING_TILE_ROWS_PARAMS(X) X(capacity) X(expected)

#define TESSERA_TILE_SPIKING_CODELETS(X)                                                                    \
  X(spiking_tile_forward, TESSERA_SPIKING_TILE_FORWARD_FIELDS, TESSERA_SPIKING_TILE_PARAMS, nullptr, 900)   \
  X(spiking_tile_lists, TESSERA_SPIKING_TILE_LISTS_FIELDS, TESSERA_SPIKING_TILE_LISTS_PARAMS, nullptr, 700, \
    .integer_only = true)                                                                                   \
  X(spiking_tile_backward, TESSERA_SPIKING_TILE_BACKWARD_FIELDS, TESSERA_SPIKING_TILE_PARAMS, nullptr, 900) \
  X(spiking_tile_rows, TESSERA_SPIKING_TILE_ROWS_FIELDS, TESSERA_SPIKING_TILE_ROWS_PARAMS, nullptr, 700)
TESSERA_DECLARE_FAMILY(tile_spiking, TESSERA_TILE_SPIKING_CODELETS)
TESSERA_TILE_SPIKING_CODELETS(TESSERA_DECLARE_FUNCTIONS)
TESSERA_POSITIONS(spiking_tile_param, TESSERA_SPIKING_TILE_PARAMS)
TESSERA_POSITIONS(spiking_tile_lists_param, TESSERA_SPIKING_TILE_LISTS_PARAMS)
TESSERA_POSITIONS(spiking_tile_rows_param, TESSERA_SPIKING_TILE_ROWS_PARAMS)

}  // namespace tessera::kernels
