// The cost of a network on a machine, without a session.
#pragma once

#include <tessera/graph.h>
#include <tessera/machine.h>

#include <cstdint>
#include <span>

namespace tessera::graph {

struct EstimateOptions {
  uint32_t on_chips = 0;  ///< number of chips, as SessionOptions::on_chips
  /// Arrays of integer inputs on which costs depend, such as lists of spikes; without them, costs are
  /// computed from their expected contents.
  std::span<const Tensor> inputs = {};
  /// The graph whose session owns the parameters, as for Session(graph, owner); null: the graph owns its
  /// parameters.
  const Graph* owner = nullptr;
  bool host_io = false;  ///< see SessionOptions::host_io
};

/// The cost of a graph on a machine, equal to Session::cost(). Takes no memory for parameters, state and
/// replicas, however large these are. Throws UsageError as Session does.
RunCost estimate(const Graph& graph, const Machine& machine, const EstimateOptions& options = {});

}  // namespace tessera::graph
