// The updates of a graph's parameters, of which equal ones share code on tiled machines.
#pragma once

#include <tessera/graph.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace tessera::graph {

/// The operations whose results only the update of one parameter, or of its state, uses; or those of them
/// before, between or after collectives that take some of their results.
struct ParameterUpdate {
  /// A result that is assigned to state, that collectives or what follows them take, or that is rounded.
  struct Given {
    ValueId value = 0;
    std::optional<ValueId> state = {};
    bool is_passed_on = false;

    /// Otherwise only rounding takes it.
    bool outlasts_update() const { return state || is_passed_on; }
  };

  std::vector<uint32_t> nodes;     ///< in their order; they can run where the last one does
  std::vector<uint32_t> rounding;  ///< round their results by random numbers of their own, and run after them
  std::vector<ValueId> taken;      ///< values of other operations, parameters, state and inputs
  std::vector<Given> given;

  std::vector<uint32_t> all_nodes() const {
    std::vector<uint32_t> all = nodes;
    all.insert(all.end(), rounding.begin(), rounding.end());
    return all;
  }
};

/// The updates of all parameters, in the order of their last operations.
std::vector<ParameterUpdate> updates_of_parameters(const Graph& graph);

/// Maps the values of one update to the values of another that computes the same from values of equal types;
/// none: they are not alike.
std::optional<std::map<ValueId, ValueId>> correspondence(const Graph& graph, const ParameterUpdate& from,
                                                         const ParameterUpdate& to);

}  // namespace tessera::graph
