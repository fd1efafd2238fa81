// Calls of functions, whose code all calls share.
#include <fmt/format.h>
#include <tessera/error.h>

#include <limits>

#include "graph/initial.h"
#include "graph/list_inputs.h"
#include "graph/loop.h"
#include "graph/stages.h"
#include "graph/substream.h"
#include "graph/transforms/function_gradients.h"
#include "lower/lowering.h"
#include "operations/list.h"

namespace tessera::graph {
namespace {

void check_patterns(const Graph& function) {
  for (ValueId id : function.inputs())
    if (function.type(id).capacity)
      throw UsageError(
          fmt::format("a function cannot take '{}', whose pattern may change: give it a fixed pattern",
                      function.info(id).name));
}

/// Parts of values that replicas divide lie as the graph's values do.
void refuse_parts(const Graph& function) {
  for (const Node& node : function.nodes()) {
    if (node.operation->traits.shards)
      throw UsageError(fmt::format(
          "a function that is called cannot have '{}': divide values where the function is called",
          node.operation->name));
    if (node.body) refuse_parts(*node.body);
  }
}

Types infer_call(const Signature& s) {
  if (!s.attributes.body) throw UsageError("call: there is no function to call; give one to Graph::call");
  const Graph& function = *s.attributes.body;
  check_function(function);
  stage_of(s.attributes);
  if (has_stages(function))
    throw UsageError("a function cannot name stages: name the stage of each call of it, or use a loop");
  check_patterns(function);
  refuse_parts(function);
  const std::vector<ValueId> inputs = function.inputs();
  if (inputs.size() != s.inputs.size())
    throw UsageError(
        fmt::format("a function with {} inputs is called with {}", inputs.size(), s.inputs.size()));
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!(function.type(inputs[i]) == s.inputs[i]))
      throw UsageError(fmt::format("the function's input '{}' is {}; the call passes {}",
                                   function.info(inputs[i]).name, to_string(function.type(inputs[i])),
                                   to_string(s.inputs[i])));
  check_sources_of_lists(s);
  Types types;
  for (const auto& [name, id] : function.outputs()) types.push_back(function.type(id));
  return types;
}

/// The call computes what its gradient needs as well, which is a call too, and draws the same random numbers.
Gradients call_gradient(const Differentiation& d) {
  std::vector<bool> given;
  for (const auto& dy : d.dy) given.push_back(dy.has_value());
  const FunctionGradient& function = d.functions.of(d.node.body, given);
  if (function.backward->outputs().empty()) return Gradients(d.node.inputs.size());
  const uint32_t index = *d.graph.info(d.node.outputs[0]).node;
  d.graph.extend(index, function.forward, d.node.attributes);
  const Node forward = d.graph.nodes()[index];
  const auto values = [&](const std::vector<ValueId>& ids) {
    std::vector<Value> all;
    for (const ValueId id : ids) all.push_back(d.graph.value(id));
    return all;
  };
  const Call how = {.number = number_of_call(forward), .stage = stage_of(forward)};
  const std::vector<Value> operands = values(forward.inputs);
  // Again by the very function of the forward pass, so that its code exists once.
  Node again = forward;
  again.attributes.erase("recompute");
  const std::vector<Value> results =
      forward.integer("recompute", 0) != 0 ? d.graph.apply(again, operands) : values(forward.outputs);
  std::vector<Value> inputs;
  for (const FunctionGradient::Taken& taken : function.taken)
    inputs.push_back((taken.is_output ? results : operands)[taken.position]);
  for (const auto& dy : d.dy)
    if (dy) inputs.push_back(*dy);
  const std::vector<Value> outputs = d.graph.call(function.backward, inputs, how);
  Gradients gradients;
  for (const auto& position : function.gradients)
    gradients.push_back(position ? std::optional(outputs[*position]) : std::nullopt);
  return gradients;
}

std::vector<Array> call_reference(const Evaluation& e) {
  const std::optional<uint32_t> call = number_of_call(e.node);
  return results_of(*e.node.body, e.inputs, call ? called(e.substream, *call) : e.substream);
}

/// The layouts that were chosen for the function.
std::vector<LayoutChoice> call_layouts(Lowering& l, const Node& node) {
  const Graph& function = *node.body;
  const Lowering& body = l.body_of(node);
  LayoutChoice choice;
  for (ValueId id : function.inputs()) {
    const ValueId given = node.inputs[choice.inputs.size()];
    const ValueLayout& inside = body.layout_of(id);
    choice.inputs.push_back(inside.weight ? l.weight_layout(given) : l.placed(inside));
  }
  for (const auto& [name, id] : function.outputs()) {
    const auto& form = l.form_of(node.outputs[choice.outputs.size()]);
    choice.outputs.push_back(form ? ValueLayout{.weight = form} : l.placed(body.result_layout(id)));
  }
  return {choice};
}

void lower_call(Lowering& l, const Node& node) {
  const LoweredFunction& function = l.function(node);
  std::vector<ops::Operand> operands;
  for (size_t i = 0; i < node.inputs.size(); ++i) operands.push_back(l.argument(i, function));
  std::vector<size_t> converted;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (l.takes_result_as_it_is(i, function)) {
      operands.push_back(l.output(i));
      continue;
    }
    const ops::Operand& inside = function.function.operands[operands.size()].operand;
    operands.push_back(l.temporary("result", l.builder().type_of(inside), inside.rows(), inside.cols()));
    converted.push_back(i);
  }
  if (const auto call = number_of_call(node)) operands.push_back(l.substream_of_call(*call));
  l.run(l.builder().call(function.function, operands));
  for (size_t i : converted) l.take_result(i, function, operands[node.inputs.size() + i]);
}

/// A block of two layers.
std::shared_ptr<const Graph> block() {
  auto function = std::make_shared<Graph>();
  const Value x = function->input("x", {6, 24});
  const Value w = function->input("w", {24, 24}), b = function->input("b", {24});
  const Value h = relu(linear(x, w, b));
  function->output("h", h);
  function->output("y", x + tanh(linear(h, w)));
  return function;
}

std::vector<Case> call_cases() {
  const auto type = [](Shape shape) { return TensorType{Type::f32, std::move(shape), {}, {}}; };
  return {{.inputs = {type({6, 24}), type({24, 24}), type({24})}, .body = block()}};
}

constexpr Operation kCall[] = {{"call", 0, std::numeric_limits<size_t>::max(), infer_call, call_gradient,
                                call_reference, call_layouts, lower_call, call_cases}};

}  // namespace

std::span<const Operation> call_operations() { return kCall; }

void check_function(const Graph& function) {
  for (const ValueInfo& info : function.values())
    if (is_kept(info))
      throw UsageError(
          fmt::format("a function cannot have the parameter or state '{}': pass it as an input", info.name));
  check_offloaded_sums(function);
  if (function.replicas() > 1) throw UsageError("a function cannot have replicas: replicate what calls it");
  if (function.outputs().empty()) throw UsageError("a function needs outputs");
  for (const Node& node : function.nodes())
    if (node.operation->traits.over_step)
      throw UsageError(
          fmt::format("a function cannot have '{}', which is over a whole step: compute it where "
                      "the function is called, and pass it as an input",
                      node.operation->name));
}

}  // namespace tessera::graph
