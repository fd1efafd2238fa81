// Spiking neurons that take currents over whole sequences, and their gradients, on hosts: one vertex is one
// core's samples. Rows are steps, or what each field says; columns are the neurons of each sample.
#pragma once

#include <tessera/spiking.h>

#include <cstddef>
#include <cstdint>

#include "kernels/common/codelet_list.h"
#include "kernels/host/spiking/layout.h"

namespace tessera::kernels {

/// - recurrent: weights [neurons, neurons], from row to column, of spikes of the previous step; with one row,
///   the weight of each neuron's own spike
/// - dynamics: 3 × neurons: decays, decays of currents, thresholds
/// - initial: 2 rows: potentials (u, or with `after_reset` v), and currents before the first step; zeros if
///   empty
/// - potentials: u; membranes: v, after the reset
#define TESSERA_NEURONS_FORWARD_FIELDS(X)                         \
  X(in)                                                           \
  X(recurrent, .optional = true)                                  \
  X(dynamics)                                                     \
  X(initial, .optional = true)                                    \
  X(spikes, .access = program::Access::out, .optional = true)     \
  X(currents, .access = program::Access::out, .optional = true)   \
  X(potentials, .access = program::Access::out, .optional = true) \
  X(membranes, .access = program::Access::out, .optional = true)  \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)

/// Empty gradients of results stand for zeros; gradients of parameters are summed over the samples. Reads
/// potentials of neurons that spike or whose decays have gradients, and currents if their decays have
/// gradients.
#define TESSERA_NEURONS_GRADIENTS_FIELDS(X)                       \
  X(potentials, .optional = true)                                 \
  X(currents, .optional = true)                                   \
  X(recurrent, .optional = true)                                  \
  X(dynamics)                                                     \
  X(initial, .optional = true)                                    \
  X(dspikes, .optional = true)                                    \
  X(dcurrents, .optional = true)                                  \
  X(dpotentials, .optional = true)                                \
  X(dmembranes, .optional = true)                                 \
  X(din, .access = program::Access::out)                          \
  X(drecurrent, .access = program::Access::out, .optional = true) \
  X(ddynamics, .access = program::Access::out, .optional = true)  \
  X(dinitial, .access = program::Access::out, .optional = true)   \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)

/// A Neuron (spiking_params()), and whether initial potentials are v, after a reset.
#define TESSERA_NEURONS_PARAMS(X) TESSERA_NEURON_PARAMS(X) X(after_reset)

#define TESSERA_NEURONS_CODELETS(X)                                                                       \
  X(neurons_forward, TESSERA_NEURONS_FORWARD_FIELDS, TESSERA_NEURONS_PARAMS, neurons_forward_simd, 16384) \
  X(neurons_gradients, TESSERA_NEURONS_GRADIENTS_FIELDS, TESSERA_NEURONS_PARAMS, neurons_gradients_simd,  \
    16384)

TESSERA_POSITIONS(neurons_param, TESSERA_NEURONS_PARAMS)
TESSERA_DECLARE_FAMILY(neurons, TESSERA_NEURONS_CODELETS)
TESSERA_NEURONS_CODELETS(TESSERA_DECLARE_FUNCTIONS)

/// Sizes of a vertex.
struct NeuronsShape {
  uint32_t steps = 0;
  uint32_t samples = 0;
  uint32_t neurons = 0;
  bool one_to_one = false;
  bool all_to_all = false;
};
NeuronsShape neurons_shape(const program::FieldView& rows, const program::FieldView& dynamics,
                           const program::FieldView& recurrent);

struct NeuronsNeuron : SpikingNeuron {
  bool after_reset;

  explicit NeuronsNeuron(std::span<const int64_t> params)
      : SpikingNeuron(params, neurons_param::kinds), after_reset(params[neurons_param::after_reset] != 0) {}
};

/// Layout of a vertex's working memory, as offsets in floats. Blocks of samples go through the steps
/// together; a chunk of neurons at a time if neurons do not depend on each other.
struct NeuronsScratch {
  NeuronsScratch(const NeuronsShape& shape, bool gradients);

  uint32_t chunk;    ///< number of neurons at a time
  uint32_t samples;  ///< number of samples at a time
  uint32_t columns;  ///< columns of a sample's chunk in states: whole strips
  size_t potential = 0, current = 0, spiked = 0, sum = 0;
  size_t own_ids = 0, own_counts = 0, transposed = 0;
  size_t floats = 0;
};

}  // namespace tessera::kernels
