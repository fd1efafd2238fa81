#include "model/list_inputs.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <cmath>
#include <limits>

#include "model/loop.h"
#include "model/operation.h"

namespace tessera::model {

std::vector<ListInputs> list_inputs(const Graph& graph) {
  const OpenedGraph all = opened(graph);
  const auto is_input = [&](size_t value) {
    return all.values[value].graph == &graph && all.values[value].info().kind == Kind::input;
  };
  std::vector<ListInputs> lists;
  for (const OpenedNode& node : all.nodes) {
    if (node.node->operation->traits.lists == nullptr || !is_input(node.inputs[0]) ||
        !is_input(node.inputs[1]))
      continue;
    const ListOperands takes = node.node->operation->traits.lists(*node.graph, *node.node);
    const uint32_t places = node.graph->type(node.node->inputs[0]).cols();
    const auto ids = static_cast<ValueId>(node.inputs[0]), num = static_cast<ValueId>(node.inputs[1]);
    // A loop may take other rows of one than of the other.
    if (graph.type(ids).rows() == graph.type(num).rows())
      lists.push_back({ids, num, {takes.batch, places / takes.batch, takes.neurons}});
  }
  return lists;
}

namespace {

template <class T>
T whole(double x, const std::string& name) {
  if (!(x >= 0 && x <= std::numeric_limits<T>::max() && x == std::floor(x)))
    throw UsageError(fmt::format("'{}' has {}, which is no {}-bit number", name, x, 8 * sizeof(T)));
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

}  // namespace tessera::model
