#include <algorithm>

#include "graph/transforms/transforms.h"

namespace tessera::graph {

size_t remove_unused(Graph& graph) {
  std::vector<bool> used(graph.values().size()), unused(graph.nodes().size());
  for (const auto& [name, id] : graph.outputs()) used[id] = true;
  for (const Assignment& assignment : graph.assignments()) used[assignment.value] = true;
  for (size_t n = unused.size(); n-- > 0;) {
    const Node& node = graph.nodes()[n];
    unused[n] = std::ranges::none_of(node.outputs, [&](ValueId output) { return used[output]; });
    for (ValueId input : node.inputs) used[input] = used[input] || !unused[n];
  }
  graph.erase(unused);
  return static_cast<size_t>(std::ranges::count(unused, true));
}

}  // namespace tessera::graph
