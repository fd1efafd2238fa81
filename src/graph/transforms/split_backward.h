// Gradients of inputs and of weights in calls of their own.
#pragma once

#include <tessera/graph.h>

#include <cstddef>
#include <vector>

#include "graph/stages.h"

namespace tessera::graph {

/// Divides each call of a backward function that gives both what other stages wait for and what serves only
/// for gradients of weights into two calls, of which the second gives the latter. All calls of a function
/// that are divided alike share the two functions. `results` are taken beside the graph's outputs and
/// assignments, whose ids stay. Returns the number of calls that it divided.
size_t split_backward(Graph& graph, const Stages& stages, const std::vector<Value>& results);

}  // namespace tessera::graph
