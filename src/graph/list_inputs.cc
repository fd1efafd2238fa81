#include "graph/list_inputs.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/operation.h"

namespace tessera::graph {

namespace {

/// The lists that a node takes, itself or by way of its body.
std::vector<ListInputs> taken_by(const Graph& graph, const Node& node) {
  if (node.operation->traits.lists != nullptr) {
    const ListOperands takes = node.operation->traits.lists(graph, node);
    const uint32_t places = graph.type(node.inputs[0]).cols();
    return {{node.inputs[0], node.inputs[1], {takes.batch, places / takes.batch, takes.neurons}}};
  }
  if (!node.body) return {};
  std::vector<ListInputs> taken = list_inputs(*node.body);
  const std::vector<ValueId> inside = node.body->inputs();
  const auto given = [&](ValueId id) {
    return node.inputs.at(static_cast<size_t>(std::ranges::find(inside, id) - inside.begin()));
  };
  for (ListInputs& lists : taken) {
    lists.ids = given(lists.ids);
    lists.num = given(lists.num);
  }
  return taken;
}

bool is_input(const Graph& graph, ValueId id) { return graph.info(id).kind == Kind::input; }

const Operation* source_of(const Graph& graph, ValueId id) {
  const auto& node = graph.info(id).node;
  return node ? graph.nodes()[*node].operation : nullptr;
}

}  // namespace

std::vector<ListInputs> list_inputs(const Graph& graph) {
  std::vector<ListInputs> all;
  for (const Node& node : graph.nodes())
    for (const ListInputs& lists : taken_by(graph, node))
      if (is_input(graph, lists.ids) && is_input(graph, lists.num)) all.push_back(lists);
  return all;
}

void check_sources_of_lists(const Signature& s) {
  if (s.graph == nullptr) return;
  for (const ListInputs& lists : taken_by(*s.graph, s.attributes)) {
    const Operation* source = source_of(*s.graph, lists.ids);
    const bool are_inputs = is_input(*s.graph, lists.ids) && is_input(*s.graph, lists.num);
    if (!are_inputs && (source == nullptr || source != source_of(*s.graph, lists.num)))
      throw UsageError(fmt::format(
          "{}: ids and num of a list of spikes must both be inputs, or both results of the same operation",
          s.operation));
  }
}

namespace {

template <class T>
T whole(double x, const std::string& name) {
  if (!(x >= 0 && x <= std::numeric_limits<T>::max() && x == std::floor(x)))
    throw UsageError(fmt::format("'{}' has {}, which is not a {}-bit number", name, x, 8 * sizeof(T)));
  return static_cast<T>(x);
}

}  // namespace

void check_lists(const Graph& graph, const ListInputs& lists, const std::vector<double>& ids,
                 const std::vector<double>& num) {
  std::vector<uint32_t> counts;
  for (double x : num) counts.push_back(whole<uint32_t>(x, graph.info(lists.num).name));
  // What lies beyond a list may be anything.
  std::vector<uint16_t> neurons(ids.size());
  const uint32_t capacity = lists.room.capacity;
  for (size_t i = 0; i < ids.size(); ++i)
    if (i % capacity < counts.at(i / capacity * 2 + 1))
      neurons[i] = whole<uint16_t>(ids[i], graph.info(lists.ids).name);
  ops::check_lists(neurons.data(), counts.data(), graph.bound_type(lists.ids).rows(), lists.room);
}

}  // namespace tessera::graph
