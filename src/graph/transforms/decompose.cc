#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>

#include "graph/operation.h"
#include "graph/transforms/transforms.h"

namespace tessera::graph {
namespace {

template <class Which>
size_t decompose_each(Graph& graph, const Which& which) {
  std::vector<bool> decomposed(graph.nodes().size());
  // What is added may be decomposed in turn.
  for (auto n = static_cast<uint32_t>(decomposed.size()); n-- > 0;) {
    const Node& node = graph.nodes()[n];
    if (!which(node)) continue;
    uint32_t added = 0;
    clone_instead(*decomposition_of(graph, node), graph, n, added);
    decomposed.insert(decomposed.begin() + n, added, false);
    n += added;
    decomposed[n] = true;
  }
  graph.erase(decomposed);
  return static_cast<size_t>(std::ranges::count(decomposed, true));
}

}  // namespace

std::shared_ptr<const Graph> decomposition_of(const Graph& graph, const Node& node) {
  // Results come before what a gradient adds, in the order of their names.
  auto function = std::make_shared<Graph>();
  std::vector<Value> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    inputs.push_back(function->input(fmt::format("x{:06}", i), graph.type(node.inputs[i])));
  const std::vector<Value> results = node.operation->decompose({node, inputs});
  for (size_t i = 0; i < results.size(); ++i) function->output(fmt::format("result {:06}", i), results[i]);
  for (size_t i = 0; i < node.outputs.size(); ++i)
    if (i >= results.size() || !(results[i].type() == graph.type(node.outputs[i])))
      throw Error(
          fmt::format("the decomposition of {} has another result {} than it", node.operation->name, i));
  return function;
}

size_t decompose(Graph& graph, const machine::Machine& machine) {
  return decompose_each(
      graph, [&](const Node& node) { return node.operation->is_decomposed_on(machine, graph, node); });
}

size_t decompose(Graph& graph, bool (*which)(const Node&)) { return decompose_each(graph, which); }

}  // namespace tessera::graph
