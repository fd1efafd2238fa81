// Placement of a graph on a machine, and the resulting program.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "bound/bound_program.h"
#include "lower/lowering.h"

namespace tessera::graph {

struct Placed {
  Lowered lowered;
  std::optional<bound::BoundProgram> program;
  std::vector<PlacementCost> considered;  ///< placements that were compared, if there was a choice
  std::vector<PassRecord> passes;         ///< passes of lowering and of the compiler

  /// Binds what runs take besides inputs, outputs and parameters: again after a weight's pattern has changed.
  void bind_metadata();
};

/// Lowers and compiles a graph. With replicas or stages a machine's chips are divided among them; otherwise
/// the graph takes one chip, or 2 or 4 that work as one, whichever is fastest; a graph with micro-batches may
/// also be divided into stages on 2 or 4 chips. If it does not fit one chip, it takes the fewest chips on
/// which it fits as stages of whole layers, or if it fits on none, the fewest that work as one. With `chips`,
/// that many chips work as one. Values of `in_place` are parameters of another session. Only the chosen
/// placement is compiled for `runs`.
Placed place_graph(const Graph& graph, const machine::Machine& machine, const std::set<ValueId>& in_place,
                   uint32_t chips, bound::Runs runs);

}  // namespace tessera::graph
