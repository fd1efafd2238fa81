#include <algorithm>

#include "graph/operation.h"
#include "graph/transforms/transforms.h"

namespace tessera::graph {
namespace {

/// The nodes of a graph while they are being joined.
class Fusion {
 public:
  explicit Fusion(const Graph& graph)
      : graph_(graph), nodes_(graph.nodes()), removed_(nodes_.size()), uses_(graph.values().size()) {
    for (const ValueInfo& value : graph.values()) producers_.push_back(value.node);
    for (const Node& node : nodes_)
      for (ValueId input : node.inputs) ++uses_[input];
    for (const auto& [name, id] : graph.outputs()) uses_[id] += 2;
    for (const Assignment& assignment : graph.assignments()) uses_[assignment.value] += 2;
  }

  std::vector<Node> run() {
    for (const Node& node : nodes_)
      for (size_t input = 0; input < node.inputs.size() && !absorb(node, input);) ++input;
    std::vector<Node> kept;
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (!removed_[i]) kept.push_back(std::move(nodes_[i]));
    return kept;
  }

 private:
  /// Joins a node with the one before it that computes an input, which nothing else uses.
  bool absorb(const Node& node, size_t input) {
    const std::optional<uint32_t> before = producers_[node.inputs[input]];
    if (!before || uses_[node.inputs[input]] != 1) return false;
    Node& producer = nodes_[*before];
    if (producer.operation->absorb == nullptr) return false;
    std::optional<Node> both = producer.operation->absorb(graph_, producer, node);
    if (!both || !std::ranges::all_of(both->inputs, [&](ValueId id) { return is_before(id, *before); }))
      return false;
    both->gradient_of = producer.gradient_of;
    for (ValueId output : both->outputs) producers_[output] = before;
    producer = *std::move(both);
    removed_[static_cast<size_t>(&node - nodes_.data())] = true;
    return true;
  }

  bool is_before(ValueId id, uint32_t node) const {
    const std::optional<uint32_t> producer = producers_[id];
    return !producer || *producer < node;
  }

  const Graph& graph_;
  std::vector<Node> nodes_;
  std::vector<bool> removed_;
  std::vector<uint32_t> uses_;
  std::vector<std::optional<uint32_t>> producers_;  ///< by value: the node that computes it
};

}  // namespace

size_t fuse(Graph& graph) {
  std::vector<Node> nodes = Fusion(graph).run();
  const size_t fused = graph.nodes().size() - nodes.size();
  graph.set_nodes(std::move(nodes));
  return fused;
}

}  // namespace tessera::graph
