// The choice on a host whether a graph runs for all of its samples at once, or for a part of them on each
// thread.
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
  std::map<std::string, TensorType> whole;  ///< types of divided inputs and outputs, with the samples of all
                                            ///< parts
  uint32_t last = 0;  ///< number of last parts that would leave tiles idle, and run one at a time on all
                      ///< tiles instead

  /// Number of parts that the busiest of `threads` threads runs, without the last parts.
  uint32_t rounds(uint32_t threads) const { return (count - last + threads - 1) / threads; }
};

/// The parts of a graph, if it is predicted to run faster divided: values stay in the caches of the thread
/// that computes them, and no thread waits for another, but each thread reads all weights. The choice, like
/// the bits of results, depends on the host's tiles and not on the number of threads. `owner`: the graph of
/// the session that owns the parameters.
std::optional<Parts> choose_parts(const Graph& graph, const machine::Machine& machine,
                                  const SessionOptions& options, const Graph* owner);

/// `count` equal parts of a graph's samples; none: it cannot be divided so.
std::optional<Parts> divide(const Graph& graph, uint32_t count);

/// Options for a session that runs all samples at once.
SessionOptions undivided(SessionOptions options);

/// Number of threads of a host that run parts side by side.
uint32_t threads_of(const machine::Machine& machine, const SessionOptions& options);

/// A host's machine with some of its tiles.
machine::Machine host_of(machine::Machine host, uint32_t tiles);

}  // namespace tessera::graph
