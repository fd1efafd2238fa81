// The updates of a graph's parameters, of which equal ones share code on tiled machines.
#pragma once

#include <tessera/graph.h>

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace tessera::graph {

/// The operations whose results only the update of one parameter, or of its state, uses.
struct ParameterUpdate {
  std::vector<uint32_t> nodes;     ///< in their order; they can run where the last one does
  std::vector<uint32_t> rounding;  ///< what rounds their results by random numbers of its own, and runs after
                                   ///< them
  std::vector<ValueId> taken;      ///< values of other operations, parameters, state and inputs
  /// Results that are assigned, or rounded, and the state to which each is assigned.
  std::vector<std::pair<ValueId, std::optional<ValueId>>> given;

  std::vector<uint32_t> all_nodes() const {
    std::vector<uint32_t> all = nodes;
    all.insert(all.end(), rounding.begin(), rounding.end());
    return all;
  }
};

/// The updates of all parameters, in the order of their last operations.
std::vector<ParameterUpdate> updates_of_parameters(const Graph& graph);

/// Maps the values of one update to those of another one that computes the same from values of equal types;
/// none: they are not alike.
std::optional<std::map<ValueId, ValueId>> correspondence(const Graph& graph, const ParameterUpdate& from,
                                                         const ParameterUpdate& to);

}  // namespace tessera::graph
