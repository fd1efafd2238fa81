// Placement of a graph on a machine, and the resulting program.
#pragma once

#include <tessera/communicator.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "bound/bound_program.h"
#include "compiler/executable.h"
#include "lower/lowering.h"
#include "machine/model/machine.h"
#include "program/program.h"

namespace tessera::graph {

/// Where a graph lies on a machine.
struct Placement {
  uint32_t chips = 0;  ///< the first ones; 0: all, as the graph's stages and replicas divide them
  std::vector<uint32_t> first_layers = {};  ///< of the chips, if each has a stage of whole layers; otherwise
                                            ///< the chips work as one
  bool pipeline = false;                    ///< whether its micro-batches go through a pipeline
};

struct Placed {
  Lowered lowered;
  std::optional<bound::BoundProgram> program;
  Placement placement;
  std::vector<PlacementCost> considered;  ///< placements that were compared, if there was a choice
  std::vector<PassRecord> passes;         ///< passes of lowering and of the compiler

  /// Binds what runs take besides inputs, outputs and parameters: again after a weight's pattern has changed.
  void bind_metadata();
};

/// The graph with balanced stages (Graph::balance_stages), if it is to have several, by an estimate of each
/// layer on one chip.
Graph with_balanced_stages(const Graph& graph, const machine::Machine& machine);

/// Lowers and compiles a graph. With replicas or stages a machine's chips are divided among them; otherwise
/// the graph takes one chip, or 2 or 4 that work as one, whichever is fastest; a graph with micro-batches may
/// also be divided into stages on 2 or 4 chips. If it does not fit one chip, it takes the fewest chips on
/// which it fits as stages of whole layers, or if it fits on none, the fewest that work as one. Stages take
/// about equal cycles, as predicted for each layer on one chip, as far as their bytes allow. With `chips`,
/// that many chips work as one. Values of `in_place` are parameters of another session. Only the chosen
/// placement is compiled for `runs`, which with a communicator are the runs of a rank's replicas.
Placed place_graph(const Graph& graph, const machine::Machine& machine, const std::set<ValueId>& in_place,
                   uint32_t chips, bound::Runs runs, const std::shared_ptr<Communicator>& communicator = {});

/// The executable of a program for a machine, which was compiled before.
using FindExecutable = std::function<std::shared_ptr<const compiler::Executable>(
    std::shared_ptr<const program::Program>, const machine::Machine&)>;

/// Lowers a graph for the placement that place_graph() gave an equal one, without a search and without
/// compiling it.
Placed place_again(const Graph& graph, const machine::Machine& machine, const std::set<ValueId>& in_place,
                   const Placement& placement, bound::Runs runs, const FindExecutable& find,
                   const std::shared_ptr<Communicator>& communicator = {});

}  // namespace tessera::graph
