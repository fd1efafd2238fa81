// On hosts, elementwise operations take as long as reading and writing their operands. Operations that follow
// one another become expressions, which are evaluated in one pass and recompute values where that is as fast
// as reading them; sums over rows take expressions too, and share a pass with others of the same operands.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "graph/broadcast.h"
#include "graph/depends.h"
#include "graph/expression.h"
#include "graph/operation.h"
#include "graph/stages.h"
#include "graph/transforms/transforms.h"

namespace tessera::graph {
namespace {

using OfWeights = std::map<const Graph*, std::vector<bool>>;

/// Values in the form of a product's weight, which few operations take: weights, their gradients, and what
/// elementwise operations make of them, in functions too.
const std::vector<bool>& values_of_weights(const Graph& graph, OfWeights& known) {
  if (const auto found = known.find(&graph); found != known.end()) return found->second;
  std::vector<bool> of_weights(graph.values().size());
  for (const Node& node : graph.nodes()) {
    if (const std::optional<ValueId> weight = weight_input(node)) of_weights[*weight] = true;
    if (is_weight_gradient(node)) of_weights[node.outputs[0]] = true;
    if (!node.body) continue;
    const std::vector<bool>& inside = values_of_weights(*node.body, known);
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (inside[node.body->inputs().at(i)]) of_weights[node.inputs[i]] = true;
    size_t output = 0;
    for (const auto& [name, id] : node.body->outputs())
      if (const ValueId given = node.outputs.at(output++); inside[id]) of_weights[given] = true;
  }
  const auto is_of_weights = [&](ValueId id) { return of_weights[id]; };
  const auto join = [&](const Node& node) {
    const bool is_update = !node.operation->traits.updates.empty();
    if (!is_update && !may_be_step(graph, node)) return false;
    if (std::ranges::none_of(node.inputs, is_of_weights) && std::ranges::none_of(node.outputs, is_of_weights))
      return false;
    bool any = false;
    for (const std::vector<ValueId>* ids : {&node.inputs, &node.outputs})
      for (const ValueId id : *ids)
        if (graph.type(id).shape == graph.type(node.outputs[0]).shape && !of_weights[id])
          any = of_weights[id] = true;
    return any;
  };
  for (bool any = true; any;) {
    any = false;
    for (const Node& node : graph.nodes()) any |= join(node);
  }
  return known[&graph] = std::move(of_weights);
}

std::vector<bool> values_of_weights(const Graph& graph) {
  OfWeights known;
  return values_of_weights(graph, known);
}

/// Nodes of one expression, in their order; those that compute its results; and the last node's position,
/// where it is computed.
struct Group {
  std::set<uint32_t> nodes;
  std::set<uint32_t> results;
  uint32_t position = 0;
  Shape shape = {};  ///< of all its values but rows, columns and numbers that are broadcast
  bool is_reduced = false;
};

class Joining {
 public:
  explicit Joining(const Graph& graph)
      : graph_(graph),
        of_weights_(values_of_weights(graph)),
        lasting_(graph.values().size()),
        users_(users_of_values(graph)),
        groups_of_(graph.nodes().size()) {
    for (const auto& [name, id] : graph.outputs()) lasting_[id] = true;
    for (const Assignment& assignment : graph.assignments()) lasting_[assignment.value] = true;
  }

  std::vector<Node> run() {
    for (auto n = static_cast<uint32_t>(graph_.nodes().size()); n-- > 0;)
      if (!join_users(n)) begin_group(n);
    share_passes();
    for (size_t g = 0; g < groups_.size(); ++g)
      if (groups_[g].nodes.size() > 1 || groups_[g].is_reduced) compute_again(g);
    return joined();
  }

 private:
  /// Positions within which values may be kept longer than before.
  static constexpr uint32_t kNear = 64;

  const Node& node(uint32_t n) const { return graph_.nodes()[n]; }
  ValueId result_of(uint32_t n) const { return node(n).outputs[0]; }

  bool is_step(uint32_t n) const { return may_be_step(graph_, node(n)) && !of_weights_[result_of(n)]; }

  void begin_group(uint32_t n) {
    const bool is_reduction = may_be_reduction(graph_, node(n));
    const ValueId whole = is_reduction ? node(n).inputs[0] : result_of(n);
    if ((!is_reduction && !is_step(n)) || of_weights_[whole]) return;
    // A single column is reduced faster as a row.
    if (!takes_inputs(n, graph_.type(whole).shape) || (is_reduction && graph_.type(whole).cols() == 1))
      return;
    groups_of_[n].insert(groups_.size());
    groups_.push_back({{n}, {n}, n, graph_.type(whole).shape, is_reduction});
  }

  /// Whether codelets broadcast all inputs of a node to a shape.
  bool takes_inputs(uint32_t n, const Shape& shape) const {
    return std::ranges::all_of(node(n).inputs, [&](ValueId id) {
      return broadcast_of(graph_.type(id), {graph_.type(id).type, shape, {}, {}}).has_value();
    });
  }

  /// Adds a node to all groups that take its result, so that it need not be stored.
  bool join_users(uint32_t n) {
    if (!is_step(n) || lasting_[result_of(n)] || users_[result_of(n)].empty()) return false;
    std::set<size_t> groups;
    for (const uint32_t user : users_[result_of(n)]) {
      if (groups_of_[user].empty()) return false;
      groups.insert(groups_of_[user].begin(), groups_of_[user].end());
    }
    if (!may_compute_in(n, groups)) return false;
    for (const size_t group : groups) groups_[group].nodes.insert(n);
    groups_of_[n] = std::move(groups);
    return true;
  }

  bool may_compute_in(uint32_t n, const std::set<size_t>& groups) const {
    constexpr size_t kMostGroups = 4, kMostGroupsOfTwo = 3;
    const Shape& shape = graph_.type(result_of(n)).shape;
    if (!takes_inputs(n, shape)) return false;
    const size_t whole_inputs = whole_inputs_of({.nodes = {n}, .results = {n}, .shape = shape});
    const bool is_kept_longer = whole_inputs > 1 || narrows(n);
    if (groups.size() > 1 && (!is_cheap(node(n)) || whole_inputs > 2 ||
                              groups.size() > (is_kept_longer ? kMostGroupsOfTwo : kMostGroups)))
      return false;
    return std::ranges::all_of(groups, [&](size_t g) {
      const Group& group = groups_[g];
      const bool is_near = group.position - n <= kNear && node(group.position).backward == node(n).backward;
      Group with = group;
      with.nodes.insert(n);
      return group.shape == shape && (is_near || !is_kept_longer) && fits(with);
    });
  }

  bool narrows(uint32_t n) const {
    return size_of(graph_.type(result_of(n)).type) < size_of(graph_.type(node(n).inputs[0]).type);
  }

  std::vector<ValueId> inputs_of(const Group& group) const {
    std::set<ValueId> computed;
    std::vector<ValueId> inputs;
    for (const uint32_t n : group.nodes) {
      for (const ValueId id : node(n).inputs)
        if (!computed.contains(id) && std::ranges::find(inputs, id) == inputs.end()) inputs.push_back(id);
      computed.insert(result_of(n));
    }
    return inputs;
  }

  bool fits(const Group& group) const {
    const size_t steps = group.nodes.size() - (group.is_reduced ? group.results.size() : 0);
    return steps <= kernels::kMostExpressionSteps &&
           group.results.size() <= kernels::kMostExpressionResults &&
           inputs_of(group).size() <= kernels::kMostExpressionInputs;
  }

  /// Reductions that are near and read the same values do so in one pass.
  void share_passes() {
    std::vector<std::pair<uint32_t, size_t>> reduced;  // positions, groups
    for (size_t g = 0; g < groups_.size(); ++g)
      if (groups_[g].is_reduced) reduced.emplace_back(groups_[g].position, g);
    std::ranges::sort(reduced);
    for (size_t i = 0; i < reduced.size(); ++i)
      for (size_t j = i + 1; j < reduced.size() && reduced[j].first - reduced[i].first <= kNear; ++j) {
        share_pass(reduced[i].second, reduced[j].second);
        share_pass(reduced[j].second, reduced[i].second);
      }
  }

  void share_pass(size_t a, size_t b) {
    const Group &first = groups_[a], &second = groups_[b];
    if (first.nodes.empty() || second.nodes.empty() || first.position > second.position ||
        second.position - first.position > kNear || first.shape != second.shape || !reads_same(first, second))
      return;
    Group both = first;
    both.nodes.insert(second.nodes.begin(), second.nodes.end());
    both.results.insert(second.results.begin(), second.results.end());
    both.position = second.position;
    if (!fits(both) || node(first.position).backward != node(second.position).backward) return;
    if (is_taken_by(first, second.position)) {
      if (!is_known_before(second, first.position)) return;
      both.position = first.position;
    }
    for (const uint32_t n : groups_[b].nodes) {
      groups_of_[n].erase(b);
      groups_of_[n].insert(a);
    }
    groups_[a] = std::move(both);
    groups_[b] = {};
  }

  bool reads_same(const Group& a, const Group& b) const {
    const std::vector<ValueId> of_a = inputs_of(a), of_b = inputs_of(b);
    return std::ranges::any_of(of_a, [&](ValueId id) {
      return graph_.type(id).shape == a.shape && std::ranges::find(of_b, id) != of_b.end();
    });
  }

  /// Whether a node before a position, or one computed there, takes a result of a group.
  bool is_taken_by(const Group& group, uint32_t position) const {
    return std::ranges::any_of(group.results, [&](uint32_t n) {
      return std::ranges::any_of(users_[result_of(n)],
                                 [&](uint32_t user) { return first_position_of(user) <= position; });
    });
  }
  /// Where a node is computed first.
  uint32_t first_position_of(uint32_t n) const {
    if (groups_of_[n].empty()) return n;
    const auto position_of = [&](size_t group) { return groups_[group].position; };
    return position_of(std::ranges::min(groups_of_[n], {}, position_of));
  }

  bool is_known_before(const Group& group, uint32_t position) const {
    return std::ranges::all_of(inputs_of(group), [&](ValueId id) {
      const std::optional<uint32_t> producer = graph_.info(id).node;
      return !producer || first_position_of(*producer) < position;
    });
  }

  /// Recomputes inputs that follow from other inputs.
  void compute_again(size_t g) {
    for (const ValueId id : inputs_of(groups_[g])) {
      if (graph_.type(id).shape != groups_[g].shape) continue;
      Group with = groups_[g];
      const std::vector<ValueId> inputs = inputs_of(with);
      const auto is_given = [&](ValueId other) {
        return graph_.type(other).shape != with.shape ||
               (other != id && std::ranges::find(inputs, other) != inputs.end());
      };
      if (add_producers(id, is_given, with) && fits(with) &&
          whole_inputs_of(with) < whole_inputs_of(groups_[g]))
        groups_[g] = std::move(with);
    }
  }

  /// Adds the nodes that compute a value from given ones.
  template <class IsGiven>
  bool add_producers(ValueId id, const IsGiven& is_given, Group& group) const {
    const std::optional<uint32_t> producer = graph_.info(id).node;
    if (!producer || *producer >= group.position || !is_step(*producer) || !is_cheap(node(*producer)) ||
        !takes_inputs(*producer, group.shape) || graph_.type(id).shape != group.shape ||
        group.nodes.size() > kernels::kMostExpressionSteps)
      return false;
    if (!group.nodes.insert(*producer).second) return true;
    const std::vector<ValueId>& inputs = node(*producer).inputs;
    return std::ranges::all_of(
        inputs, [&](ValueId input) { return is_given(input) || add_producers(input, is_given, group); });
  }

  size_t whole_inputs_of(const Group& group) const {
    const std::vector<ValueId> inputs = inputs_of(group);
    return static_cast<size_t>(
        std::ranges::count_if(inputs, [&](ValueId id) { return graph_.type(id).shape == group.shape; }));
  }

  std::vector<Node> joined() const {
    std::vector<std::optional<Node>> at(graph_.nodes().size());
    for (uint32_t n = 0; n < at.size(); ++n)
      if (groups_of_[n].empty()) at[n] = node(n);
    for (const Group& group : groups_)
      if (!group.nodes.empty())
        at[group.position] = group.nodes.size() > 1 ? joined(group) : node(group.position);
    std::vector<Node> nodes;
    for (std::optional<Node>& each : at)
      if (each) nodes.push_back(*std::move(each));
    return nodes;
  }

  Node joined(const Group& group) const {
    Node result = node(group.position);
    result.operation = &find_operation("expression");
    result.inputs = inputs_of(group);
    result.outputs.clear();
    std::vector<ValueId> values = result.inputs;
    Expression expression;
    for (const uint32_t n : group.nodes) {
      if (group.results.contains(n)) {
        expression.results.push_back(static_cast<int64_t>(expression.steps.size()));
        result.outputs.push_back(result_of(n));
      }
      std::vector<int64_t> operands;
      for (const ValueId id : node(n).inputs)
        operands.push_back(std::ranges::find(values, id) - values.begin());
      expression.steps.push_back({node(n).operation, node(n).attributes, std::move(operands)});
      values.push_back(result_of(n));
    }
    result.attributes = attributes_of(expression);
    return result;
  }

  const Graph& graph_;
  std::vector<bool> of_weights_, lasting_;  ///< by value: whether it is an output or new state, and so stored
  std::vector<std::vector<uint32_t>> users_;  ///< by value: the nodes that take it
  std::vector<std::set<size_t>> groups_of_;   ///< by node
  std::vector<Group> groups_;
};

}  // namespace

size_t join_elementwise(Graph& graph, const machine::Machine& machine) {
  // Operations of several stages would become one.
  if (machine.kind != machine::Kind::host || has_stages(graph)) return 0;
  std::vector<Node> nodes = Joining(graph).run();
  const size_t joined = graph.nodes().size() - nodes.size();
  graph.set_nodes(std::move(nodes));
  return joined;
}

}  // namespace tessera::graph
