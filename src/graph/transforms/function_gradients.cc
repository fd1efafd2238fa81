#include "graph/transforms/function_gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "graph/operation.h"
#include "graph/transforms/gradients.h"
#include "graph/transforms/transforms.h"

namespace tessera::graph {
namespace {

/// A function with its gradient in one graph, to be split in two.
class Differentiated {
 public:
  Differentiated(const Graph& function, const std::vector<bool>& given, FunctionGradients& functions)
      : graph_(function), inputs_(function.inputs()) {
    std::vector<std::pair<ValueId, Value>> gradients;
    size_t position = 0;
    for (const auto& [name, id] : function.outputs())
      if (given[position++]) {
        const Value dy = graph_.input(fmt::format("gradient of {}", name), function.type(id));
        given_.push_back(dy.id);
        gradients.emplace_back(id, dy);
      }
    std::vector<Value> of;
    for (ValueId id : inputs_) of.push_back(graph_.value(id));
    added_ = backpropagate(graph_, gradients, of, functions);
  }

  FunctionGradient split() {
    FunctionGradient result;
    find_needed();
    result.forward = forward();
    for (ValueId id : needed_) result.taken.push_back(taken(*result.forward, id));
    add_backward(result);
    return result;
  }

 private:
  std::span<const Node> nodes() const { return graph_.nodes(); }
  bool is_added(ValueId id) const { return graph_.info(id).node >= added_.first; }

  /// What the gradient takes from the function.
  void find_needed() {
    const auto need = [&](ValueId id) {
      const bool is_given = std::ranges::find(given_, id) != given_.end();
      const bool is_own = is_added(id) || graph_.info(id).kind == Kind::constant;
      if (!is_given && !is_own && std::ranges::find(needed_, id) == needed_.end()) needed_.push_back(id);
    };
    for (const Node& node : nodes().subspan(added_.first)) std::ranges::for_each(node.inputs, need);
  }

  /// The function without what was added, in a graph of its own.
  std::shared_ptr<const Graph> forward() {
    auto forward = std::make_shared<Graph>();
    Clones to;
    for (ValueId id : inputs_) to[id] = forward->input(graph_.info(id).name, graph_.type(id)).id;
    clone(graph_, nodes().first(added_.first), *forward, to);
    for (const auto& [name, id] : graph_.outputs()) {
      // A constant that no operation takes.
      if (!to.contains(id))
        to[id] = forward->constant("", graph_.type(id).shape, graph_.contents(id), graph_.type(id).type).id;
      forward->output(name, forward->value(to.at(id)));
    }
    for (ValueId id : needed_) {
      if (graph_.info(id).kind == Kind::input || is_output(id)) continue;
      forward->output(fmt::format("stash {:06}", id), forward->value(to.at(id)));
    }
    copied_ = std::move(to);
    return forward;
  }

  bool is_output(ValueId id) const {
    return std::ranges::any_of(graph_.outputs(), [&](const auto& output) { return output.second == id; });
  }

  FunctionGradient::Taken taken(const Graph& forward, ValueId id) const {
    const auto input = std::ranges::find(inputs_, id);
    if (input != inputs_.end()) return {false, static_cast<size_t>(input - inputs_.begin())};
    size_t position = 0;
    for (const auto& [name, output] : forward.outputs()) {
      if (output == copied_.at(id)) return {true, position};
      ++position;
    }
    return {};
  }

  void add_backward(FunctionGradient& result) {
    auto backward = std::make_shared<Graph>();
    Clones to;
    for (ValueId id : needed_) to[id] = backward->input(fmt::format("taken {}", id), graph_.type(id)).id;
    for (ValueId id : given_) to[id] = backward->input(graph_.info(id).name, graph_.type(id)).id;
    clone(graph_, nodes().subspan(added_.first), *backward, to);
    backward->mark_backward(0);
    size_t outputs = 0;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const std::optional<Value>& found = added_.gradients[i];
      result.gradients.push_back(found ? std::optional(outputs++) : std::nullopt);
      if (found) backward->output(fmt::format("gradient {:06}", i), backward->value(to.at(found->id)));
    }
    result.backward = std::move(backward);
  }

  Graph graph_;
  std::vector<ValueId> inputs_;
  std::vector<ValueId> given_;   ///< gradients of outputs
  std::vector<ValueId> needed_;  ///< of the function by its gradient
  Backpropagation added_;
  Clones copied_;
};

}  // namespace

const FunctionGradient& FunctionGradients::of(const std::shared_ptr<const Graph>& function,
                                              const std::vector<bool>& given) {
  const auto known = known_.find({function, given});
  if (known != known_.end()) return known->second;
  FunctionGradient gradient = Differentiated(*function, given, *this).split();
  return known_[{function, given}] = std::move(gradient);
}

std::vector<std::optional<Value>> differentiate_decomposition(const Differentiation& d) {
  std::vector<bool> given;
  for (const auto& dy : d.dy) given.push_back(dy.has_value());
  const FunctionGradient& function = d.functions.of(decomposition_of(d.graph, d.node), given);
  Clones clones;
  if (d.node.operation->lower != nullptr) {
    clones = clone(*function.forward, d.graph, d.node.inputs);
  } else {
    const uint32_t index = *d.graph.info(d.node.outputs[0]).node;
    uint32_t added = 0;
    clones = clone_instead(*function.forward, d.graph, index, added);
    std::vector<bool> erased(d.graph.nodes().size());
    erased[index + added] = true;
    d.graph.erase(erased);
    d.forward_nodes += added - 1;
  }
  const std::vector<ValueId> inputs = function.forward->inputs();
  std::vector<ValueId> results, taken;
  for (const auto& [name, id] : function.forward->outputs()) results.push_back(id);
  for (const FunctionGradient::Taken& each : function.taken)
    taken.push_back(clones.at((each.is_output ? results : inputs).at(each.position)));
  for (const auto& dy : d.dy)
    if (dy) taken.push_back(dy->id);
  const Clones backward = clone(*function.backward, d.graph, taken);
  std::vector<ValueId> found;
  for (const auto& [name, id] : function.backward->outputs()) found.push_back(backward.at(id));
  std::vector<std::optional<Value>> gradients;
  for (const auto& position : function.gradients)
    gradients.push_back(position ? std::optional(d.graph.value(found[*position])) : std::nullopt);
  return gradients;
}

}  // namespace tessera::graph
