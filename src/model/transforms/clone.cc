#include "model/operation.h"
#include "model/transforms/transforms.h"

namespace tessera::model {

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
    const std::vector<Value> outputs =
        node.body ? to.call(node.body, inputs) : to.apply(node.operation->name, inputs, node.attributes);
    for (size_t i = 0; i < outputs.size(); ++i) clones[node.outputs[i]] = outputs[i].id;
  }
}

}  // namespace tessera::model
