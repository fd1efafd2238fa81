#include "graph/transforms/gradients.h"

#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/gradients.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "graph/operation.h"
#include "graph/transforms/function_gradients.h"
#include "graph/transforms/transforms.h"

namespace tessera::graph {
namespace {

/// Gradients of values, as far as they are known.
class Backward {
 public:
  /// `depends`: by value, whether it depends on the values whose gradients are wanted.
  Backward(Graph& graph, FunctionGradients& functions, const std::vector<bool>& depends)
      : graph_(graph), functions_(functions), depends_(depends) {}

  /// A gradient may be a row that stands for every row of the value.
  void add(ValueId id, Value gradient) {
    Known& known = gradients_[id];
    std::optional<Value>& sum = gradient.shape() == graph_.type(id).shape ? known.whole : known.row;
    sum = sum ? *sum + gradient : gradient;
  }

  std::optional<Value> of(ValueId id) {
    const auto found = gradients_.find(id);
    if (found == gradients_.end()) return {};
    Known& known = found->second;
    if (const std::optional<Value> row = std::exchange(known.row, {}))
      known.whole = known.whole ? *known.whole + *row : expand(*row, graph_.type(id).shape);
    return known.whole;
  }

  /// Names gradients after their values, for reports.
  void name() {
    for (const auto& [id, known] : gradients_) {
      if (!known.whole) continue;
      const Value gradient = *known.whole;
      const std::string name = graph_.info(id).name + ".gradient";
      if (graph_.info(gradient.id).name.starts_with('%') && !graph_.contains(name))
        graph_.rename(gradient, name);
    }
  }

  void through(uint32_t index, uint32_t& forward_nodes) {
    const Node node = graph_.nodes()[index];
    std::vector<std::optional<Value>> dy;
    bool any = false;
    for (ValueId output : node.outputs) {
      dy.push_back(of(output));
      any |= dy.back().has_value();
    }
    if (!any || node.operation->traits.zero_derivative) return;
    if (!node.operation->is_differentiable())
      throw UsageError(fmt::format("{} = {}(…) has no gradient, and the loss depends on it",
                                   graph_.info(node.outputs[0]).name, node.operation->name));
    std::vector<bool> needed;
    for (ValueId input : node.inputs) needed.push_back(depends_[input]);
    const auto added = [&] { return static_cast<uint32_t>(graph_.nodes().size()) - forward_nodes; };
    const uint32_t before = added();
    const Differentiation d{graph_, node, dy, functions_, needed, forward_nodes};
    const Gradients found =
        node.operation->gradient != nullptr ? node.operation->gradient(d) : differentiate_decomposition(d);
    for (size_t i = 0; i < found.size(); ++i)
      if (found[i]) add(node.inputs[i], *found[i]);
    graph_.mark_gradients(forward_nodes + before, node.outputs[0]);
  }

 private:
  struct Known {
    std::optional<Value> whole = {}, row = {};
  };

  Graph& graph_;
  FunctionGradients& functions_;
  const std::vector<bool>& depends_;
  std::map<ValueId, Known> gradients_;
};

/// By value: whether it depends on a value in `of`.
std::vector<bool> dependents(const Graph& graph, const std::vector<Value>& of) {
  std::vector<bool> depends(graph.values().size());
  for (const Value& value : of) depends[value.id] = true;
  for (const Node& node : graph.nodes())
    for (ValueId input : node.inputs)
      if (depends[input])
        for (ValueId output : node.outputs) depends[output] = true;
  return depends;
}

}  // namespace

bool is_one(const Value& value) {
  const ValueInfo& info = value.graph->info(value.id);
  return info.kind == Kind::constant && info.type.elements() == 1 && info.initial.values->front() == 1;
}

Backpropagation backpropagate(Graph& graph, const std::vector<std::pair<ValueId, Value>>& given,
                              const std::vector<Value>& of, FunctionGradients& functions) {
  const std::vector<bool> depends = dependents(graph, of);
  Backpropagation result{.first = static_cast<uint32_t>(graph.nodes().size())};
  Backward backward(graph, functions, depends);
  for (const auto& [id, gradient] : given) backward.add(id, gradient);
  for (uint32_t i = result.first; i-- > 0;) {
    const std::vector<ValueId>& outputs = graph.nodes()[i].outputs;
    if (std::ranges::any_of(outputs, [&](ValueId id) { return id < depends.size() && depends[id]; }))
      backward.through(i, result.first);
  }
  for (const Value& value : of) result.gradients.push_back(backward.of(value.id));
  backward.name();
  graph.mark_backward(result.first);
  verify_if_asserting(graph);
  return result;
}

std::vector<std::optional<Value>> gradients(Value loss, const std::vector<Value>& of) {
  return gradients(loss, of, false);
}

std::vector<std::optional<Value>> gradients(Value loss, const std::vector<Value>& of, bool sums_in_f32) {
  for (const Value& value : of)
    if (&value.owner() != &loss.owner())
      throw UsageError("gradients: a value belongs to another graph than the loss");
  if (loss.type().elements() != 1)
    throw UsageError(fmt::format("gradients: the loss is {}; it must be a scalar", to_string(loss.type())));
  FunctionGradients functions(sums_in_f32);
  const Value one = loss.graph->constant("", loss.shape(), {1}, loss.type().type);
  return backpropagate(*loss.graph, {{loss.id, one}}, of, functions).gradients;
}

}  // namespace tessera::graph
