#include "graph/transforms/transforms.h"

namespace tessera::graph {

void clone(const Graph& from, std::span<const Node> nodes, Graph& to, Clones& clones) {
  const auto clone_of = [&](ValueId id) {
    if (const auto known = clones.find(id); known != clones.end()) return to.value(known->second);
    const TensorType& type = from.type(id);
    const Value constant = to.constant("", type.shape, from.contents(id), type.type);
    clones[id] = constant.id;
    return constant;
  };
  for (const Node& node : nodes) {
    std::vector<Value> inputs;
    for (ValueId input : node.inputs) inputs.push_back(clone_of(input));
    const std::vector<Value> outputs = to.apply(node, inputs);
    for (size_t i = 0; i < outputs.size(); ++i) clones[node.outputs[i]] = outputs[i].id;
  }
}

Clones clone(const Graph& function, Graph& to, const std::vector<ValueId>& inputs) {
  Clones clones;
  const std::vector<ValueId> ids = function.inputs();
  for (size_t i = 0; i < ids.size(); ++i) clones[ids[i]] = inputs.at(i);
  clone(function, function.nodes(), to, clones);
  return clones;
}

Clones clone_instead(const Graph& function, Graph& graph, uint32_t node, uint32_t& count) {
  const Node replaced = graph.nodes().at(node);
  Clones clones;
  count = graph.insert_before(node, [&] { clones = clone(function, graph, replaced.inputs); });
  auto result = function.outputs().begin();
  for (ValueId output : replaced.outputs) {
    ValueId& by = clones.at((result++)->second);
    graph.replace(graph.value(output), graph.value(by));
    by = output;
  }
  return clones;
}

}  // namespace tessera::graph
