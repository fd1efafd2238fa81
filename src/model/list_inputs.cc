#include "model/list_inputs.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <cmath>
#include <limits>

#include "model/operation.h"

namespace tessera::model {

std::vector<ListInputs> list_inputs(const Graph& graph) {
  const auto is_input = [&](ValueId id) { return graph.info(id).kind == Kind::input; };
  std::vector<ListInputs> lists;
  for (const Node& node : graph.nodes()) {
    if (node.operation->traits.lists == nullptr) continue;
    const ValueId ids = node.inputs[0], num = node.inputs[1];
    const ListOperands takes = node.operation->traits.lists(graph, node);
    if (is_input(ids) && is_input(num))
      lists.push_back({ids, num, {takes.batch, graph.type(ids).cols() / takes.batch, takes.neurons}});
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
