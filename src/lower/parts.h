// Whether a graph runs for all of its samples at once on a host, or for some of them on each thread.
#pragma once

#include <tessera/graph.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "machine/model/machine.h"

namespace tessera::graph {

/// A graph for some of the samples, which runs on one thread for one part after the other.
struct Parts {
  Graph graph;
  uint32_t count = 1;
  std::map<std::string, TensorType> whole;  ///< divided inputs and outputs with those of all parts
  uint32_t last = 0;  ///< the last parts, which would leave threads idle: one at a time on all threads

  /// Times that the busiest of so many threads runs, before the last parts.
  uint32_t rounds(uint32_t threads) const { return (count - last + threads - 1) / threads; }
};

/// The parts of a graph that is predicted to run faster so: what each thread computes stays in its caches,
/// and no thread waits for another, but each reads all weights. `owner`: of another session's parameters.
std::optional<Parts> choose_parts(const Graph& graph, const machine::Machine& machine,
                                  const SessionOptions& options, const Graph* owner);

/// Options for a session of all samples at once.
SessionOptions undivided(SessionOptions options);

/// Threads of a host that run parts side by side.
uint32_t threads_of(const machine::Machine& machine, const SessionOptions& options);

/// A host's machine with some of its threads.
machine::Machine host_of(machine::Machine host, uint32_t threads);

}  // namespace tessera::graph
