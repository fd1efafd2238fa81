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

}  // namespace tessera::graph
