// Placement of a graph on a machine, and the resulting executable.
#pragma once

#include <memory>
#include <set>
#include <vector>

#include "compiler/executable.h"
#include "lower/lowering.h"

namespace tessera::graph {

/// The purpose for which a graph is compiled.
enum class CompileFor : uint8_t { runs, costs };

struct Placed {
  Lowered lowered;
  std::shared_ptr<const compiler::Executable> executable;
  std::vector<PlacementCost> considered;  ///< placements that were compared, if there was a choice
  std::vector<PassRecord> passes;         ///< passes of lowering and of the compiler

  /// The bindings of a run besides inputs, outputs and parameters.
  std::vector<engine::Binding> metadata() const;
};

/// Lowers and compiles a graph. With replicas or stages a machine's chips are divided among them; otherwise
/// the graph takes one chip, or 2 or 4 that work as one, whichever is fastest; a graph with micro-batches may
/// also be divided into stages on 2 or 4 chips. If it does not fit one chip, it takes the fewest chips on
/// which it fits as stages of whole layers, or if it fits on none, the fewest that work as one. With `chips`,
/// that many chips work as one. Values of `bound` are parameters that each run binds. Only the chosen
/// placement is compiled to run, and only if `what` is CompileFor::runs.
Placed place_graph(const Graph& graph, const machine::Machine& machine, const std::set<ValueId>& bound,
                   uint32_t chips, CompileFor what);

}  // namespace tessera::graph
