// The bytes of an optimizer's state, by a graph alone.
#pragma once

#include <tessera/graph.h>

#include <cstdint>

#include "studies/paper/study.h"

namespace tessera::studies::mlperf {

/// "parameters" (elements), "parameter_bytes", and of the optimizer's state "divided_bytes", which replicas
/// divide, and "whole_bytes", of parameters with fewer than kLargeValue elements.
Result state_result(const graph::Graph& graph);

/// Bytes of the state that each of `replicas` replicas has.
double state_of_replica(const Result& state, uint32_t replicas);

}  // namespace tessera::studies::mlperf
