// Counts from lists of spikes how often each neuron fired in a sequence, and the gradient.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

/// counts[b, n] = the number of steps in which neuron n of sample b fired. ids: steps × (samples · capacity),
/// u16; num: steps × (samples · 2), u32; counts: samples × neurons, f32.
#define TESSERA_SPIKE_COUNTS_FIELDS(X) X(ids) X(num, .costed = true) X(counts, .access = program::Access::out)

/// dids[t, b · capacity + i] = dcounts[b, ids[t, b · capacity + i]] for each listed neuron, fired or not, and
/// 0 beyond.
#define TESSERA_SPIKE_COUNTS_GRADIENT_FIELDS(X) \
  X(ids) X(num, .costed = true) X(dcounts) X(dids, .access = program::Access::out)

/// Capacity of the lists per step and sample; for the cost, expected listed neurons per step and sample.
#define TESSERA_SPIKE_COUNTS_PARAMS(X) X(capacity) X(expected)

#define TESSERA_SPIKE_COUNTS_CODELETS(X)                                                  \
  X(spike_counts, TESSERA_SPIKE_COUNTS_FIELDS, TESSERA_SPIKE_COUNTS_PARAMS, nullptr, 160) \
  X(spike_counts_gradient, TESSERA_SPIKE_COUNTS_GRADIENT_FIELDS, TESSERA_SPIKE_COUNTS_PARAMS, nullptr, 160)
TESSERA_DECLARE_FAMILY(spike_counts, TESSERA_SPIKE_COUNTS_CODELETS)
TESSERA_POSITIONS(spike_counts_param, TESSERA_SPIKE_COUNTS_PARAMS)

}  // namespace tessera::kernels
