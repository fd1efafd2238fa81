// The choice of what is computed again in the backward pass, so that a graph fits its memory budget.
#pragma once

#include <tessera/graph.h>
#include <tessera/pass_record.h>

#include <cstdint>
#include <memory>

#include "graph/transforms/recompute.h"
#include "machine/model/machine.h"

namespace tessera::graph {

/// A graph that fits its memory budget, if that is possible.
struct Fitted {
  Graph graph;  ///< without the budget
  Recomputation recomputation;
  uint32_t estimates = 0;  ///< number of programs that were compiled
  PassRecord pass;
  std::shared_ptr<Session::Impl>
      estimated;  ///< its program for no runs; null unless it was the last compiled
};

/// Computes as few of a graph's calls and stages again as fit its memory budget, in the order of
/// Graph::set_memory_budget(). As each saves memory, a bisection finds how many are needed: with n calls that
/// suffice it compiles at most 2 + ⌈log₂ n⌉ programs, and 3 + ⌈log₂ n⌉ with n stages. If nothing suffices for
/// what the machine has, the graph comes as close as it can; for a number of bytes, throws UsageError.
/// `owner` is the graph of the session that owns the parameters; null: the graph owns them.
Fitted fit_to_memory(const Graph& graph, const machine::Machine& machine, const SessionOptions& options,
                     const Graph* owner);

}  // namespace tessera::graph
