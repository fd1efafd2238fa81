// A loop over micro-batches of what a graph computes.
#include <fmt/format.h>
#include <tessera/error.h>

#include <set>

#include "graph/loop.h"
#include "graph/operation.h"
#include "graph/substream.h"

namespace tessera::graph {

/// The operations with values of the same numbers. What they take, or is wanted, and they do not compute is
/// given as inputs, but for constants; nothing else is left.
Graph Graph::as_function(std::set<ValueId> taken) const {
  Graph function = *this;
  function.outputs_.clear();
  function.assignments_.clear();
  function.replicas_ = 1;
  function.replicated_.clear();
  for (const Node& node : nodes_) taken.insert(node.inputs.begin(), node.inputs.end());
  for (ValueId id = 0; id < values_.size(); ++id) {
    ValueInfo& info = function.values_[id];
    if (info.node || (info.kind == Kind::constant && taken.contains(id))) continue;
    info = {.name = info.name, .kind = taken.contains(id) ? Kind::input : Kind::result, .type = info.type};
  }
  return function;
}

std::vector<Value> Graph::repeat_for_micro_batches(uint32_t count, const std::vector<Value>& summed,
                                                   double scale) {
  if (count == 0) throw UsageError("the number of micro-batches is 0; it must be at least 1");
  std::set<ValueId> wanted;
  for (const auto& [name, id] : outputs_) wanted.insert(id);
  for (const Value& value : summed) {
    require_own(value, "micro-batches");
    wanted.insert(value.id);
  }
  Graph body = as_function(std::move(wanted));
  Loop loop{.count = count, .scale = scale};
  const auto add_output = [&](std::string_view what, ValueId id) {
    const std::string name = fmt::format("{} {:06}", what, body.outputs_.size());
    body.output(name, body.value(id));
    return name;
  };
  for (const Value& value : summed) loop.summed.insert(add_output("summed", value.id));
  for (const auto& [name, id] : outputs_) loop.summed.insert(add_output("summed output", id));
  std::vector<Assignment*> set;
  for (Assignment& assignment : assignments_)
    if (const ValueInfo& info = body.info(assignment.value); info.node || info.kind == Kind::input)
      set.push_back(&assignment), add_output("set", assignment.value);
  std::vector<Value> given;
  for (ValueId id : body.inputs()) {
    given.push_back(value(id));
    ValueInfo& info = values_[id];
    if (info.kind != Kind::input) continue;
    loop.indexed.insert(info.name);
    info.type = of_all_passes(info.type, count, info.name);
  }
  // Its constants are in the body.
  std::set<ValueId> kept;
  for (const Assignment& assignment : assignments_) kept.insert(assignment.value);
  for (ValueId id = 0; id < values_.size(); ++id)
    if (values_[id].kind == Kind::constant && body.info(id).kind == Kind::constant && !kept.contains(id))
      values_[id].kind = Kind::result;
  set_nodes({});
  const auto shared = std::make_shared<const Graph>(std::move(body));
  Node node{.operation = &find_operation("loop"), .attributes = attributes_of(loop, *shared), .body = shared};
  if (has_substreams(*shared)) node.attributes["call"] = int64_t{0};
  const std::vector<Value> results = apply(node, given);
  auto result = results.begin() + static_cast<int64_t>(set.size());
  for (size_t i = 0; i < set.size(); ++i) set[i]->value = results[i].id;
  const std::vector<Value> sums(result, result + static_cast<int64_t>(summed.size()));
  result += static_cast<int64_t>(summed.size());
  for (auto& [name, id] : outputs_) id = (result++)->id;
  return sums;
}

}  // namespace tessera::graph
