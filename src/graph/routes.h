// What passes of micro-batches through the stages of a graph send each other.
#pragma once

#include <tessera/pipeline_actions.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/stages.h"

namespace tessera::graph {

/// Values that one pass sends to another part of the chips.
struct PassRoute {
  size_t from = 0;  ///< position of the pass
  size_t to = 0;    ///< position of the first pass there that takes any of them
  std::vector<ValueId> values = {};
};

/// The routes between passes whose stages lie on different parts of the chips, by the sending pass and then
/// by the receiving part. If passes hand values on, a value that many parts take goes from each to the next:
/// sent to all at once, it would make all wait for each other. Otherwise the pass that computes it sends it.
std::vector<PassRoute> routes_of_passes(const Graph& graph, const std::vector<StagePart>& passes,
                                        const std::vector<uint32_t>& places, bool hand_on);

/// The same routes as lists of actions have them. `routes` are the routes of the passes.
StageLinks links_of_passes(const Graph& graph, const std::vector<StagePart>& passes,
                           const std::vector<PassRoute>& routes, std::vector<uint32_t> places,
                           uint32_t replicas);

}  // namespace tessera::graph
