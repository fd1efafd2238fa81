// What a network costs on a machine, without a session of it.
#pragma once

#include <tessera/graph.h>
#include <tessera/machine.h>

#include <cstdint>
#include <span>

namespace tessera::graph {

struct EstimateOptions {
  uint32_t chips = 0;  ///< as SessionOptions has them
  /// Arrays of integer inputs on which costs depend, such as lists of spikes; without them, costs are those
  /// of what is expected.
  std::span<const Tensor> inputs = {};
  /// The parameters are those of a session of this graph, as Session(graph, owner) shares them.
  const Graph* owner = nullptr;
};

/// The cost of a graph on a machine, as a session of it has. Takes no memory for parameters, state and
/// replicas, however large they are. Throws UsageError as Session does.
RunCost estimate(const Graph& graph, const Machine& machine, const EstimateOptions& options = {});

}  // namespace tessera::graph
