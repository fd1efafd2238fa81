#include "lower/missing_row.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "base/integer_types.h"
#include "graph/depends.h"
#include "graph/loop.h"

namespace tessera::graph {
namespace {

/// A node, in its graph.
struct NodeInGraph {
  const Graph* graph;
  const Node* node;
};

bool hold(const std::vector<Lowered::Sets>& sets, uint32_t set) {
  return std::ranges::any_of(
      sets, [&](const Lowered::Sets& some) { return some.first_set <= set && set < some.last_set; });
}

/// The innermost node that added a compute set.
std::optional<NodeInGraph> place_of(const Graph& graph, const Lowered& lowered, uint32_t set) {
  for (const auto& [function, of] : lowered.functions)
    if (const auto found = place_of(*function.first, of.body, set)) return found;
  for (const auto& [node, body] : lowered.loops)
    if (const auto found = place_of(*graph.nodes()[node].body, *body, set)) return found;
  for (size_t n = 0; n < graph.nodes().size(); ++n)
    if (hold(lowered.sets[n], set)) return NodeInGraph{&graph, &graph.nodes()[n]};
  return {};
}

/// The graph's inputs that a value is computed from.
std::set<ValueId> inputs_of(const Graph& graph, ValueId value) {
  const std::vector<bool> sources = sources_of(graph, value);
  std::set<ValueId> inputs;
  for (ValueId id : graph.inputs())
    if (sources[id]) inputs.insert(id);
  return inputs;
}

/// The coordinates of an entry in an array of a shape.
std::vector<uint64_t> coordinates_of(uint64_t entry, const Shape& shape) {
  std::vector<uint64_t> at(shape.size());
  for (size_t d = shape.size(); d-- > 0; entry /= shape[d]) at[d] = entry % shape[d];
  return at;
}

/// The first row of a part, in a value that is computed from divided inputs.
uint64_t first_row(const Shape& shape, const Graph& graph, const std::set<ValueId>& sources,
                   const Parts& parts, uint32_t part) {
  const bool is_divided = std::ranges::any_of(sources, [&](ValueId id) {
    const auto whole = parts.whole.find(graph.info(id).name);
    return whole != parts.whole.end() && whole->second.shape[0] == uint64_t{shape[0]} * parts.count;
  });
  return is_divided ? uint64_t{part} * shape[0] : 0;
}

/// Names of the graph's inputs from which a value in it or in a function is computed; none are known for a
/// function.
std::string names_of_inputs(const Graph& graph, const std::set<ValueId>& inputs) {
  std::vector<std::string> names;
  for (ValueId id : inputs) names.push_back(fmt::format("'{}'", graph.info(id).name));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::string text_of(const program::Overflow& error, const Graph& graph, const Lowered& lowered) {
  const std::optional<NodeInGraph> place =
      error.compute_set ? place_of(graph, lowered, *error.compute_set) : std::nullopt;
  if (!place) return error.what();
  const auto& [of, node] = *place;
  const std::string names =
      of == &graph ? names_of_inputs(graph, inputs_of(graph, node->outputs[0])) : std::string();
  return fmt::format("{} of integers{} is beyond 32 bits, which integers have here",
                     node->text("function", ""),
                     names.empty() ? "" : fmt::format(" that come from {}", names));
}

std::string text_of(const program::MissingRow& error, const Graph& graph, const Lowered& lowered,
                    const Parts* parts) {
  const program::RowEntry& at = error.at;
  const std::optional<NodeInGraph> place =
      at.compute_set ? place_of(graph, lowered, *at.compute_set) : std::nullopt;
  if (!place) return error.what();
  const auto& [of, node] = *place;
  const auto ids =
      std::ranges::find_if(node->inputs, [&](ValueId id) { return is_integer(of->type(id).type); });
  if (ids == node->inputs.end()) return error.what();
  const Shape& shape = of->type(*ids).shape;
  const std::set<ValueId> sources = of == &graph ? inputs_of(graph, *ids) : std::set<ValueId>{};
  std::vector<uint64_t> entry = coordinates_of(at.entry, shape);
  if (parts != nullptr && at.part && !shape.empty())
    entry[0] += first_row(shape, graph, sources, *parts, *at.part);
  const std::string names = names_of_inputs(graph, sources);
  const std::string from = names.empty() ? "" : fmt::format(", which come from {},", names);
  if (const int64_t size = node->integer("size", 0); size > 0)
    return fmt::format("an index{} is not one of a dimension of {}; it must be from 0 to {}",
                       names.empty() ? "" : fmt::format(" that comes from {}", names), size, size - 1);
  const auto table = std::ranges::find_if(node->inputs, [&](ValueId id) { return id != *ids; });
  const bool is_named =
      table != node->inputs.end() && graph.info(*table).kind == Kind::parameter && of == &graph;
  return fmt::format("{}: entry {} of the ids{} is {}; {} rows 0 to {}", node->operation->name, entry, from,
                     at.row, is_named ? fmt::format("'{}' has", graph.info(*table).name) : "there are",
                     at.rows - 1);
}

}  // namespace tessera::graph
