#include "lower/pattern_groups.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <optional>

#include "graph/loop.h"
#include "graph/operation.h"
#include "lower/layout.h"
#include "sparse/convolution_groups.h"
#include "sparse/pattern.h"

namespace tessera::graph {
namespace {

using GroupsByWeight = std::multimap<ValueId, ConvolutionGroups>;

/// The groups of all products of a graph and its functions, by the value that has the weight's form.
GroupsByWeight groups_by_weight(const Graph& graph, const WeightForms& forms) {
  GroupsByWeight found;
  for (const Node& node : graph.nodes()) {
    if (node.operation->traits.weight_groups != nullptr)
      if (const std::optional<ConvolutionGroups> of = node.operation->traits.weight_groups(node))
        found.emplace(weight_of(forms, *weight_input(node)), *of);
    if (!node.body) continue;
    const GroupsByWeight in_body = groups_by_weight(*node.body, forms_of_body(node));
    for (const auto& [inside, outside] : same_inside(node)) {
      const auto [begin, end] = in_body.equal_range(inside);
      for (auto each = begin; each != end; ++each) found.emplace(weight_of(forms, outside), each->second);
    }
  }
  return found;
}

}  // namespace

PatternGroups pattern_groups(const Graph& graph) {
  PatternGroups groups;
  if (std::ranges::none_of(graph.values(),
                           [](const ValueInfo& info) { return info.type.capacity.has_value(); }))
    return groups;
  for (const auto& [id, of] : groups_by_weight(graph, weight_forms(graph)))
    groups.emplace(graph.info(id).name, of);
  return groups;
}

void require_in_groups(const PatternGroups& groups, const std::string& name, const Pattern& pattern) {
  const auto [begin, end] = groups.equal_range(name);
  if (begin != end) sparse::validate(pattern);
  for (auto each = begin; each != end; ++each)
    if (!sparse::is_in_groups(pattern, each->second))
      throw UsageError(
          fmt::format("{}: the new pattern has a block that is not of one of the {} groups of a convolution",
                      name, each->second.groups));
}

}  // namespace tessera::graph
