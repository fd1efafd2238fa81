// A loop over micro-batches of what a graph computes.
#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>

#include "graph/depends.h"
#include "graph/loop.h"
#include "graph/operation.h"
#include "graph/substream.h"
#include "graph/transforms/transforms.h"

namespace tessera::graph {
namespace {

/// The operations on which a value depends.
std::vector<Node> nodes_of(const Graph& graph, ValueId value) {
  const std::vector<bool> sources = sources_of(graph, value);
  std::vector<Node> nodes;
  std::ranges::copy_if(graph.nodes(), std::back_inserter(nodes), [&](const Node& node) {
    return std::ranges::any_of(node.outputs, [&](ValueId output) { return sources[output]; });
  });
  return nodes;
}

}  // namespace

struct Graph::MicroBatch {
  Graph body;
  Loop loop;

  std::string add_output(std::string_view what, ValueId id) {
    std::string name = fmt::format("{} {:06}", what, body.outputs().size());
    body.output(name, body.value(id));
    return name;
  }
  void sum(std::string_view what, ValueId id, bool in_f32 = false) {
    const std::string name = add_output(what, id);
    loop.summed.insert(name);
    if (in_f32 && body.type(id).type != Type::f32) loop.summed_in_f32.insert(name);
  }
};

/// The operations, with the same numbers of values. Values that they take or that are wanted, and that they
/// do not compute, become inputs, except constants; nothing else is left.
Graph Graph::as_function(std::set<ValueId> taken) const {
  Graph function = *this;
  function.outputs_.clear();
  function.assignments_.clear();
  function.replicas_ = 1;
  function.memory_budget_.reset();
  function.places_.clear();
  function.stage_begins_.clear();
  function.balanced_stages_.reset();
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
                                                   double scale, const Pipeline& pipeline, bool in_f32) {
  if (count == 0) throw UsageError("the number of micro-batches is 0; it must be at least 1");
  check_offloaded_sums(*this);
  std::set<ValueId> wanted;
  for (const auto& [name, id] : outputs_) wanted.insert(id);
  for (const Value& value : summed) {
    require_own(value, "micro-batches");
    wanted.insert(value.id);
  }
  std::vector<MicroBatch> before;
  std::vector<Node> means = separate_means(count, before);
  MicroBatch all{as_function(std::move(wanted)), {.count = count, .scale = scale, .pipeline = pipeline}};
  for (const Value& value : summed) all.sum("summed", value.id, in_f32);
  for (const auto& [name, id] : outputs_) all.sum("summed output", id);
  std::vector<Assignment*> set;
  for (Assignment& assignment : assignments_)
    if (const ValueInfo& info = all.body.info(assignment.value); info.node || info.kind == Kind::input)
      set.push_back(&assignment), all.add_output("set", assignment.value);
  // Constants are in the bodies.
  std::set<ValueId> kept;
  for (const Assignment& assignment : assignments_) kept.insert(assignment.value);
  for (ValueId id = 0; id < values_.size(); ++id)
    if (values_[id].kind == Kind::constant && all.body.info(id).kind == Kind::constant && !kept.contains(id))
      values_[id].kind = Kind::result;
  for (ValueId id : inputs()) {
    const auto takes = [&](const MicroBatch& each) { return each.body.info(id).kind == Kind::input; };
    if (takes(all) || std::ranges::any_of(before, takes))
      values_[id].type = of_all_passes(values_[id].type, count, values_[id].name);
  }
  set_nodes({});
  for (size_t i = 0; i < means.size(); ++i) {
    means[i].inputs = {repeat(std::move(before[i]))[0].id};
    nodes_.push_back(std::move(means[i]));
    number_nodes();
  }
  const std::vector<Value> results = repeat(std::move(all));
  auto result = results.begin() + static_cast<int64_t>(set.size());
  for (size_t i = 0; i < set.size(); ++i) set[i]->value = results[i].id;
  const std::vector<Value> sums(result, result + static_cast<int64_t>(summed.size()));
  result += static_cast<int64_t>(summed.size());
  for (auto& [name, id] : outputs_) id = (result++)->id;
  verify_if_asserting(*this);
  return sums;
}

/// Removes means over the whole step, and finds what runs for each micro-batch before the others to compute
/// them.
std::vector<Node> Graph::separate_means(uint32_t count, std::vector<MicroBatch>& before) {
  std::vector<Node> means, others;
  for (const Node& node : nodes_) (node.operation->traits.over_step ? means : others).push_back(node);
  for (const Node& mean : means) {
    const ValueId of = mean.inputs[0];
    set_nodes(others);
    set_nodes(nodes_of(*this, of));
    MicroBatch& each = before.emplace_back(as_function({of}), Loop{.count = count, .scale = 1.0 / count});
    each.sum("mean", each.body.info(of).node ? of : (each.body.value(of) * 1).id);
  }
  set_nodes(std::move(others));
  return means;
}

/// The loop over what runs for each micro-batch: it takes its own rows of inputs, and other values whole.
std::vector<Value> Graph::repeat(MicroBatch&& each) {
  std::vector<Value> given;
  for (ValueId id : each.body.inputs()) {
    given.push_back(value(id));
    if (info(id).kind == Kind::input) each.loop.indexed.insert(info(id).name);
  }
  const auto shared = std::make_shared<const Graph>(std::move(each.body));
  Node node{
      .operation = &find_operation("loop"), .attributes = attributes_of(each.loop, *shared), .body = shared};
  if (has_substreams(*shared)) node.attributes["call"] = int64_t{0};
  return apply(node, given);
}

}  // namespace tessera::graph
