#include "lower/parameter_updates.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "graph/depends.h"
#include "graph/initial.h"
#include "graph/operation.h"
#include "graph/substream.h"

namespace tessera::graph {
namespace {

bool is_number(const Graph& graph, ValueId id) {
  return graph.info(id).kind == Kind::constant && graph.type(id).elements() == 1;
}

class UpdateSearch {
 public:
  explicit UpdateSearch(const Graph& graph)
      : graph_(graph),
        users_(users_of_values(graph)),
        is_between_(graph.nodes().size()),
        owners_(graph.nodes().size()) {
    for (const Assignment& assignment : graph.assignments())
      states_[assignment.value].push_back(assignment.state);
    for (const auto& [name, id] : graph.outputs()) outputs_.insert(id);
    find_between();
  }

  std::vector<ParameterUpdate> find() {
    for (size_t n = graph_.nodes().size(); n-- > 0;)
      if (is_between_[n] || may_belong(graph_.nodes()[n])) owners_[n] = owner_of(graph_.nodes()[n]);
    // A parameter's operations, divided into parts by collectives.
    std::map<ValueId, uint32_t> divided;
    std::map<std::pair<ValueId, uint32_t>, ParameterUpdate> parts;
    for (uint32_t n = 0; n < graph_.nodes().size(); ++n) {
      if (!owners_[n]) continue;
      uint32_t& part = divided[*owners_[n]];
      if (is_between_[n]) {
        ++part;
        continue;
      }
      ParameterUpdate& update = parts[{*owners_[n], part}];
      (draws_numbers(graph_.nodes()[n]) ? update.rounding : update.nodes).push_back(n);
    }
    std::vector<ParameterUpdate> updates;
    for (auto& [part, update] : parts) {
      if (!std::ranges::any_of(update.nodes, [&](uint32_t n) { return is_update(graph_.nodes()[n]); }) ||
          rounding_waits(update))
        continue;
      connect(update);
      updates.push_back(std::move(update));
    }
    std::ranges::sort(updates, {}, [](const ParameterUpdate& update) { return update.nodes.back(); });
    return updates;
  }

 private:
  /// Finds the collectives that take results of updates, such as norms of steps, and new parts of parameters.
  void find_between() {
    std::vector<bool> follows(graph_.values().size());  // by value: whether it comes from an update
    for (size_t n = 0; n < graph_.nodes().size(); ++n) {
      const Node& node = graph_.nodes()[n];
      const bool comes_after = std::ranges::any_of(node.inputs, [&](ValueId id) { return follows[id]; });
      is_between_[n] = comes_after && node.operation->traits.over_replicas != nullptr;
      for (ValueId output : node.outputs) follows[output] = comes_after || is_update(node);
    }
  }

  /// Gradients themselves do not: they are computed from different things, and before any parameter changes.
  bool may_belong(const Node& node) const {
    const Traits& traits = node.operation->traits;
    if (!node.backward || node.gradient_of || node.body || traits.weight || traits.over_replicas != nullptr)
      return false;
    const auto is_scalar = [&](ValueId id) { return graph_.type(id).elements() == 1; };
    return is_update(node) || traits.elementwise || std::ranges::all_of(node.outputs, is_scalar);
  }

  ValueId parameter_of(ValueId state) const { return graph_.info(state).belongs.value_or(state); }

  /// The parameter for whose update alone a node computes something.
  std::optional<ValueId> owner_of(const Node& node) const {
    std::set<std::optional<ValueId>> owners;
    for (ValueId output : node.outputs) {
      if (outputs_.contains(output)) return {};
      if (const auto assigned = states_.find(output); assigned != states_.end())
        for (ValueId state : assigned->second) owners.insert(parameter_of(state));
      for (uint32_t user : users_[output]) {
        if (draws_numbers(node) && !is_between_[user]) return {};
        owners.insert(owners_[user]);
      }
    }
    if (owners.size() != 1 || !*owners.begin()) return {};
    const ValueId owner = **owners.begin();
    if (graph_.info(owner).kind != Kind::parameter || takes_state_of_others(node, owner)) return {};
    return owner;
  }

  /// Whether rounding, which runs where the last other node does, takes something computed later, such as the
  /// number of the step, if nothing before takes it.
  bool rounding_waits(const ParameterUpdate& update) const {
    return std::ranges::any_of(update.rounding, [&](uint32_t n) {
      return std::ranges::any_of(graph_.nodes()[n].inputs, [&](ValueId input) {
        const std::optional<uint32_t>& producer = graph_.info(input).node;
        return producer && *producer > update.nodes.back();
      });
    });
  }

  /// Another parameter may have been updated when a node runs with the update of this one.
  bool takes_state_of_others(const Node& node, ValueId owner) const {
    return std::ranges::any_of(node.inputs, [&](ValueId input) {
      return is_kept(graph_.info(input)) && parameter_of(input) != owner;
    });
  }

  void connect(ParameterUpdate& update) const {
    std::set<ValueId> own, seen;
    for (uint32_t n : update.nodes) {
      const Node& node = graph_.nodes()[n];
      for (ValueId input : node.inputs)
        if (!own.contains(input) && !is_number(graph_, input) && seen.insert(input).second)
          update.taken.push_back(input);
      own.insert(node.outputs.begin(), node.outputs.end());
    }
    const auto is_among = [](const std::vector<uint32_t>& nodes, uint32_t node) {
      return std::ranges::find(nodes, node) != nodes.end();
    };
    for (uint32_t n : update.nodes)
      for (ValueId output : graph_.nodes()[n].outputs) {
        bool is_rounded = false, is_passed_on = false;
        for (uint32_t user : users_[output]) {
          const bool rounds = is_among(update.rounding, user);
          is_rounded |= rounds;
          is_passed_on |= !rounds && !is_among(update.nodes, user);
        }
        const auto assigned = states_.find(output);
        if (assigned != states_.end())
          for (ValueId state : assigned->second) update.given.push_back({output, state, is_passed_on});
        else if (is_rounded || is_passed_on)
          update.given.push_back({output, {}, is_passed_on});
      }
  }

  const Graph& graph_;
  std::vector<std::vector<uint32_t>> users_;        ///< by value: the nodes that take it
  std::map<ValueId, std::vector<ValueId>> states_;  ///< by value: the state to which it is assigned
  std::set<ValueId> outputs_;                       ///< of the graph
  std::vector<bool> is_between_;                    ///< by node: whether it divides updates into parts
  std::vector<std::optional<ValueId>> owners_;      ///< by node
};

/// Compares two updates, operation by operation.
class Comparison {
 public:
  Comparison(const Graph& graph, const ParameterUpdate& from, const ParameterUpdate& to)
      : graph_(graph), from_(from), to_(to) {}

  std::optional<std::map<ValueId, ValueId>> run() {
    if (from_.nodes.size() != to_.nodes.size() || from_.taken.size() != to_.taken.size() ||
        from_.given.size() != to_.given.size())
      return {};
    for (size_t i = 0; i < from_.taken.size(); ++i)
      if (!add(from_.taken[i], to_.taken[i])) return {};
    for (size_t i = 0; i < from_.nodes.size(); ++i)
      if (!are_alike(graph_.nodes()[from_.nodes[i]], graph_.nodes()[to_.nodes[i]])) return {};
    for (size_t i = 0; i < from_.given.size(); ++i)
      if (!are_alike(from_.given[i], to_.given[i])) return {};
    return std::move(to_by_from_);
  }

 private:
  bool add(ValueId from, ValueId to) {
    to_by_from_[from] = to;
    return graph_.type(from) == graph_.type(to);
  }

  bool are_alike(const Node& from, const Node& to) {
    if (from.operation != to.operation || from.attributes != to.attributes ||
        from.inputs.size() != to.inputs.size() || from.outputs.size() != to.outputs.size())
      return false;
    for (size_t i = 0; i < from.inputs.size(); ++i)
      if (!are_same(from.inputs[i], to.inputs[i])) return false;
    for (size_t i = 0; i < from.outputs.size(); ++i)
      if (!add(from.outputs[i], to.outputs[i])) return false;
    return true;
  }

  bool are_same(ValueId from, ValueId to) const {
    if (is_number(graph_, from) && is_number(graph_, to))
      return graph_.type(from) == graph_.type(to) && graph_.contents(from) == graph_.contents(to);
    const auto found = to_by_from_.find(from);
    return found != to_by_from_.end() && found->second == to;
  }

  bool are_alike(const ParameterUpdate::Given& from, const ParameterUpdate::Given& to) const {
    if (!are_same(from.value, to.value) || from.state.has_value() != to.state.has_value() ||
        from.is_passed_on != to.is_passed_on)
      return false;
    const bool are_taken = from.state && to_by_from_.contains(*from.state);
    return !are_taken || are_same(*from.state, *to.state);
  }

  const Graph& graph_;
  const ParameterUpdate &from_, &to_;
  std::map<ValueId, ValueId> to_by_from_;
};

}  // namespace

std::vector<ParameterUpdate> updates_of_parameters(const Graph& graph) { return UpdateSearch(graph).find(); }

std::optional<std::map<ValueId, ValueId>> correspondence(const Graph& graph, const ParameterUpdate& from,
                                                         const ParameterUpdate& to) {
  return Comparison(graph, from, to).run();
}

}  // namespace tessera::graph
