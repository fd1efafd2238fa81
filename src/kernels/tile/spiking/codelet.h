// Neurons of a spiking layer that lie on one tile, one step at a time, for all samples of a batch.
//
// Lists are those of <tessera/spiking.h>, of one step: ids 1 × (samples · capacity), u16, and num 1 ×
// (samples · 2), u32. They are of whole layers; a tile has the neurons [first, first + neurons). Numbers of
// its neurons are rows of samples · neurons. A step whose time is 0 is none: layers whose spikes others take
// in the same pass of a loop begin and end at different passes.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

/// Rows of weights of the neurons that fired, added, and a step of each neuron.
/// - weight: inputs × neurons; recurrent: all neurons of the layer × neurons; f32 or f16
/// - dynamics: 4 × neurons: decays, decays of currents, thresholds, ϑ_grad
/// - time: 1 × 1, u32: the number of the step, from 1, or 0
/// - state: rows of potentials, currents and adaptations, as far as neurons have them
/// - flags: samples × neurons, u8: 2 fired, 1 passes a gradient; before the vertex those of the step before
/// - surrogate, resets (u8: 1 fired), potentials, currents: what gradients read
#define TESSERA_SPIKING_TILE_FORWARD_FIELDS(X)                    \
  X(in_ids)                                                       \
  X(in_num)                                                       \
  X(own_ids, .optional = true)                                    \
  X(own_num, .optional = true)                                    \
  X(weight, .alignment = 8)                                       \
  X(recurrent, .alignment = 8, .optional = true)                  \
  X(dynamics)                                                     \
  X(time)                                                         \
  X(state, .access = program::Access::inout)                      \
  X(flags, .access = program::Access::inout, .optional = true)    \
  X(surrogate, .access = program::Access::out, .optional = true)  \
  X(resets, .access = program::Access::out, .optional = true)     \
  X(potentials, .access = program::Access::out, .optional = true) \
  X(currents, .access = program::Access::out, .optional = true)

/// Lists of a step from the flags of all neurons, those that hosts make.
/// - flags: samples × all neurons of the layer
/// - control: 1 × 4, u32, as of hosts (spiking_control)
/// - dropped: samples × 2, u32, added to
#define TESSERA_SPIKING_TILE_LISTS_FIELDS(X) \
  X(flags)                                   \
  X(control)                                 \
  X(time)                                    \
  X(ids, .access = program::Access::out)     \
  X(num, .access = program::Access::out)     \
  X(dropped, .access = program::Access::inout)

/// A step backward of each neuron. ddynamics is summed over samples and steps.
/// - upstream: of each place of the lists; without spikes of each potential
/// - resets, potentials: two rows, of the step before and of this one; currents: of the step before
/// - state: three rows of gradients that the step after passes back
/// - dx: of the sums of weights
#define TESSERA_SPIKING_TILE_BACKWARD_FIELDS(X)                    \
  X(own_ids, .optional = true)                                     \
  X(own_num, .optional = true)                                     \
  X(upstream, .optional = true)                                    \
  X(dynamics)                                                      \
  X(time)                                                          \
  X(surrogate, .optional = true)                                   \
  X(resets, .optional = true)                                      \
  X(potentials, .optional = true)                                  \
  X(currents, .optional = true)                                    \
  X(state, .access = program::Access::inout)                       \
  X(ddynamics, .access = program::Access::inout, .optional = true) \
  X(dx, .access = program::Access::out)

/// The gradients of the weights of neurons that fired, and those of listed neurons.
/// - dweight: added to; din: of each listed place, this tile's part of it, 0 beyond the lists
#define TESSERA_SPIKING_TILE_ROWS_FIELDS(X)                    \
  X(ids)                                                       \
  X(num)                                                       \
  X(weight, .alignment = 8, .optional = true)                  \
  X(dx)                                                        \
  X(time)                                                      \
  X(dweight, .access = program::Access::inout, .alignment = 8) \
  X(din, .access = program::Access::out, .optional = true)

/// Rooms of lists per step and sample; the first neuron; a Neuron (spiking_params()); for the cost, listed
/// entries per sample that are expected of the inputs and of the layer.
#define TESSERA_SPIKING_TILE_PARAMS(X) \
  X(in_capacity)                       \
  X(capacity)                          \
  X(first)                             \
  X(kinds)                             \
  X(slope)                             \
  X(scale)                             \
  X(gain)                              \
  X(adaptation_decay)                  \
  X(adaptation_strength)               \
  X(expected_in)                       \
  X(expected)
/// The random numbers' operation, and the number of the first sample.
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
