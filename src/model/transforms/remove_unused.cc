#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "model/transforms/transforms.h"

namespace tessera::model {

std::string remove_unused(Graph& graph) {
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
  const size_t removed = graph.nodes().size() - kept.size();
  graph.set_nodes(std::move(kept));
  return fmt::format("{} operations", removed);
}

}  // namespace tessera::model
