#include "graph/depends.h"

#include <algorithm>

namespace tessera::graph {

std::vector<bool> sources_of(const Graph& graph, ValueId value) {
  std::vector<bool> sources(graph.values().size());
  sources[value] = true;
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node)
    if (std::ranges::any_of(node->outputs, [&](ValueId output) { return sources[output]; }))
      for (ValueId input : node->inputs) sources[input] = true;
  return sources;
}

std::vector<std::vector<uint32_t>> users_of_values(const Graph& graph) {
  std::vector<std::vector<uint32_t>> users(graph.values().size());
  for (uint32_t n = 0; n < graph.nodes().size(); ++n)
    for (ValueId input : graph.nodes()[n].inputs) users[input].push_back(n);
  return users;
}

}  // namespace tessera::graph
