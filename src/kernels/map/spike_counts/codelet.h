// How often each neuron fired in a sequence, from lists of spikes, and the gradient of that.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

#define TESSERA_SPIKE_COUNTS_FIELDS(X) X(ids) X(num) X(counts, .access = program::Access::out)
#define TESSERA_SPIKE_COUNTS_GRADIENT_FIELDS(X) \
  X(ids) X(num) X(dcounts) X(dids, .access = program::Access::out)
/// Room of the lists per step and sample; for the cost, listed neurons that are expected of it.
#define TESSERA_SPIKE_COUNTS_PARAMS(X) X(capacity) X(expected)

namespace spike_counts_field {
enum : size_t { TESSERA_SPIKE_COUNTS_FIELDS(TESSERA_POSITION) count };
}
namespace spike_counts_gradient_field {
enum : size_t { TESSERA_SPIKE_COUNTS_GRADIENT_FIELDS(TESSERA_POSITION) count };
}
namespace spike_counts_param {
enum : size_t { TESSERA_SPIKE_COUNTS_PARAMS(TESSERA_POSITION) count };
}

/// counts[b, n] = the number of steps in which neuron n of sample b fired. ids: steps × (samples · capacity),
/// u16; num: steps × (samples · 2), u32; counts: samples × neurons, f32.
extern const program::Codelet spike_counts_codelet;

/// dids[t, b · capacity + i] = dcounts[b, ids[t, b · capacity + i]] for each listed neuron, fired or not, and
/// 0 beyond.
extern const program::Codelet spike_counts_gradient_codelet;

std::span<const ListedCodelet> spike_counts_codelets();

}  // namespace tessera::kernels
