// Checks of values that are lists of spikes, and random lists for test cases.
#pragma once

#include "graph/operation.h"

namespace tessera::graph {

/// Throws UsageError unless the first two inputs are lists of `batch` samples.
void require_lists(const Signature& s, uint32_t batch);

/// Adds random lists to the inputs of a case: some of the neurons in each step and sample, with those that
/// fired first.
void add_lists(Case& c, uint32_t steps, uint32_t batch, uint32_t capacity, uint32_t inputs);

}  // namespace tessera::graph
