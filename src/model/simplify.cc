#include "model/simplify.h"

#include <algorithm>
#include <map>
#include <memory>
#include <ranges>
#include <vector>

#include "model/operation.h"

namespace tessera::model {
namespace {

/// The nodes of a graph while they are being joined.
class Fusion {
 public:
  explicit Fusion(const Graph& graph)
      : graph_(graph), nodes_(graph.nodes()), removed_(nodes_.size()), uses_(graph.values().size()) {
    for (const Node& node : nodes_)
      for (ValueId input : node.inputs) ++uses_[input];
    for (const auto& [name, id] : graph.outputs()) uses_[id] += 2;
    for (const Assignment& assignment : graph.assignments()) uses_[assignment.value] += 2;
  }

  std::vector<Node> run() {
    for (Node& node : nodes_) {
      if (node.operation->name == "relu" || node.operation->name == "gelu") activation(node);
      if (node.operation->name == "relu_gradient") mask(node);
    }
    std::vector<Node> kept;
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (!removed_[i]) kept.push_back(std::move(nodes_[i]));
    return kept;
  }

 private:
  /// The node that computes a value which nothing else uses; null: another one.
  Node* sole_producer(ValueId id, std::string_view operation) {
    const std::optional<uint32_t> producer = graph_.info(id).node;
    if (!producer || uses_[id] != 1 || removed_[*producer]) return nullptr;
    return nodes_[*producer].operation->name == operation ? &nodes_[*producer] : nullptr;
  }

  void remove(const Node& node) { removed_[static_cast<size_t>(&node - nodes_.data())] = true; }

  void activation(Node& node) {
    Node* product = sole_producer(node.inputs[0], "linear");
    if (product == nullptr || product->attributes.contains("activation")) return;
    product->attributes["activation"] = std::string(node.operation->name);
    product->outputs = node.outputs;
    remove(node);
  }

  /// The mask is a result of the forward pass, so it is known where the product is.
  void mask(Node& node) {
    Node* product = sole_producer(node.inputs[0], "linear_input_gradient");
    if (product == nullptr || product->inputs.size() > 2) return;
    if (!(graph_.type(node.inputs[1]) == graph_.type(node.outputs[0]))) return;
    const std::optional<uint32_t> producer = graph_.info(node.inputs[1]).node;
    if (producer && *producer > static_cast<size_t>(product - nodes_.data())) return;
    product->inputs.push_back(node.inputs[1]);
    product->outputs = node.outputs;
    remove(node);
  }

  const Graph& graph_;
  std::vector<Node> nodes_;
  std::vector<bool> removed_;
  std::vector<uint32_t> uses_;
};

void remove_unused(Graph& graph) {
  std::vector<bool> used(graph.values().size());
  for (const auto& [name, id] : graph.outputs()) used[id] = true;
  for (const Assignment& assignment : graph.assignments()) used[assignment.value] = true;
  std::vector<Node> kept;
  for (const Node& node : graph.nodes() | std::views::reverse) {
    if (std::ranges::none_of(node.outputs, [&](ValueId output) { return used[output]; })) continue;
    for (ValueId input : node.inputs) used[input] = true;
    kept.push_back(node);
  }
  std::ranges::reverse(kept);
  graph.set_nodes(std::move(kept));
}

using Functions = std::map<std::shared_ptr<const Graph>, std::shared_ptr<const Graph>>;

void simplify(Graph& graph, Functions& simplified) {
  remove_unused(graph);
  std::vector<Node> nodes = graph.nodes();
  for (Node& node : nodes) {
    if (!node.body) continue;
    std::shared_ptr<const Graph>& known = simplified[node.body];
    if (!known) {
      auto copy = std::make_shared<Graph>(*node.body);
      simplify(*copy, simplified);
      known = std::move(copy);
    }
    node.body = known;
  }
  graph.set_nodes(std::move(nodes));
  graph.set_nodes(Fusion(graph).run());
}

}  // namespace

void simplify(Graph& graph) {
  Functions simplified;
  simplify(graph, simplified);
}

}  // namespace tessera::model
