#include "graph/loop.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>
#include <tessera/gradients.h>
#include <tessera/pipeline.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "graph/operation.h"
#include "graph/stages.h"

namespace tessera::graph {
namespace {

std::vector<std::string> input_names(const Graph& body) {
  std::vector<std::string> names;
  for (ValueId id : body.inputs()) names.push_back(body.info(id).name);
  return names;
}

std::vector<std::string> output_names(const Graph& body) {
  std::vector<std::string> names;
  for (const auto& [name, id] : body.outputs()) names.push_back(name);
  return names;
}

int64_t loop_position_of(const std::string& name, const std::vector<std::string>& names,
                         std::string_view what) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end())
    throw UsageError(
        fmt::format("loop: its function has no {} '{}'; it has {}", what, name, fmt::join(names, ", ")));
  return found - names.begin();
}

std::vector<int64_t> loop_positions_of(const std::set<std::string>& of, const std::vector<std::string>& names,
                                       std::string_view what) {
  std::vector<int64_t> positions;
  for (const std::string& name : of) positions.push_back(loop_position_of(name, names, what));
  return positions;
}

/// Positions that an attribute lists, all less than `below`.
std::vector<size_t> listed(const Node& node, std::string_view name, size_t below) {
  std::vector<size_t> positions;
  for (const int64_t position : node.list(name)) {
    if (position < 0 || std::cmp_greater_equal(position, below))
      throw UsageError(fmt::format("loop: {} names the position {} of {}", name, position, below));
    positions.push_back(static_cast<size_t>(position));
  }
  return positions;
}

/// Marks the positions that an attribute lists.
template <class Kind>
void mark(const Node& node, std::string_view name, Kind kind, std::vector<Kind>& kinds) {
  for (const size_t position : listed(node, name, kinds.size())) {
    if (kinds[position] != Kind())
      throw UsageError(fmt::format(
          "loop: an input can be only one of indexed and carried, an output only one of stacked and summed; "
          "number {} is {} too",
          position, name));
    kinds[position] = kind;
  }
}

void mark_sums_in_f32(const Node& node, LoopForm& form) {
  form.in_f32.resize(form.outputs.size());
  if (!node.attributes.contains("summed_in_f32")) return;
  for (const size_t position : listed(node, "summed_in_f32", form.outputs.size())) {
    if (form.outputs[position] != LoopOutput::summed)
      throw UsageError(fmt::format("loop: output {} is not summed, and its sum is to be FP32", position));
    form.in_f32[position] = true;
  }
}

Pipeline pipeline_of(const Node& node) {
  Pipeline pipeline;
  if (node.attributes.contains("pipeline")) pipeline.kind = pipeline_named(node.text("pipeline"));
  if (node.attributes.contains("recomputed"))
    for (const int64_t stage : node.list("recomputed")) {
      if (stage < 0 || stage >= std::numeric_limits<uint32_t>::max())
        throw UsageError(fmt::format("loop: stage {} cannot be recomputed: stages count from 0", stage));
      pipeline.recomputed.insert(static_cast<uint32_t>(stage));
    }
  if (node.attributes.contains("offload_from")) {
    const int64_t elements = node.integer("offload_from");
    if (elements < 0)
      throw UsageError(fmt::format("loop: values of at least {} elements cannot be offloaded", elements));
    pipeline.offload_from = static_cast<uint64_t>(elements);
  }
  return pipeline;
}

/// Throws UsageError if a pass depends on the one before, or draws random numbers other than by
/// micro-batches.
void check_pipelined(const Node& node, const LoopForm& form) {
  if (!form.is_pipelined()) return;
  check_offload(form.pipeline);
  if (!form.carried.empty()) throw UsageError("loop: nothing can be carried from pass to pass of a pipeline");
  if (form.reversed) throw UsageError("loop: the passes of a pipeline run forward only");
  if (node.integer("call", 0) != 0)
    throw UsageError(
        "loop: a pipeline draws random numbers by micro-batches: use add_training or "
        "repeat_for_micro_batches");
}

/// A graph and the bodies of its loops, numbered together.
class Opening {
 public:
  OpenedGraph run(const Graph& graph) {
    std::vector<size_t> numbers(graph.values().size());
    for (ValueId id = 0; id < numbers.size(); ++id) numbers[id] = add(graph, id);
    open(graph, numbers, {});
    return std::move(opened_);
  }

 private:
  size_t add(const Graph& graph, ValueId id) {
    opened_.values.push_back({&graph, id, {}});
    return opened_.values.size() - 1;
  }

  void open(const Graph& graph, const std::vector<size_t>& numbers, std::optional<uint32_t> around) {
    for (const Node& node : graph.nodes()) {
      const std::optional<uint32_t> own = stage_of(node);
      OpenedNode opened{.graph = &graph, .node = &node, .stage = own ? own : around};
      for (ValueId output : node.outputs) opened.outputs.push_back(numbers[output]);
      for (ValueId input : node.inputs) opened.inputs.push_back(numbers[input]);
      if (node.gradient_of) opened.gradient_of = numbers[*node.gradient_of];
      const size_t before = opened_.nodes.size();
      if (is_loop(node)) opened.inputs = open_body(node, opened.inputs, opened.stage);
      opened.inside = opened_.nodes.size() - before;
      for (size_t output : opened.outputs) opened_.values[output].node = opened_.nodes.size();
      opened_.nodes.push_back(std::move(opened));
    }
  }

  /// Returns the numbers of the body's outputs.
  std::vector<size_t> open_body(const Node& node, const std::vector<size_t>& given,
                                std::optional<uint32_t> stage) {
    const Graph& body = *node.body;
    const std::vector<ValueId> inputs = body.inputs();
    std::vector<size_t> numbers(body.values().size()), outputs;
    for (ValueId id = 0; id < numbers.size(); ++id) {
      const auto input = std::ranges::find(inputs, id);
      numbers[id] =
          input == inputs.end() ? add(body, id) : given.at(static_cast<size_t>(input - inputs.begin()));
    }
    open(body, numbers, stage);
    for (const auto& [name, id] : body.outputs()) outputs.push_back(numbers[id]);
    return outputs;
  }

  OpenedGraph opened_;
};

}  // namespace

bool is_loop(const Node& node) { return node.operation->traits.is_loop; }

LoopForm loop_form(const Node& node) {
  const Graph& body = *node.body;
  LoopForm form{.scale = node.number("scale", 1.0), .reversed = node.integer("reversed", 0) != 0};
  const int64_t count = node.integer("count");
  if (count < 1 || count > std::numeric_limits<uint32_t>::max())
    throw UsageError(fmt::format("loop: its number of passes is {}; it must be at least 1", count));
  form.count = static_cast<uint32_t>(count);
  form.body_inputs = body.inputs();
  for (const auto& [name, id] : body.outputs()) form.body_outputs.push_back(id);
  form.inputs.resize(form.body_inputs.size());
  form.outputs.resize(form.body_outputs.size());
  mark(node, "indexed", LoopInput::indexed, form.inputs);
  mark(node, "stacked", LoopOutput::stacked, form.outputs);
  mark(node, "summed", LoopOutput::summed, form.outputs);
  mark_sums_in_f32(node, form);
  const std::vector<int64_t>& carried = node.list("carried");
  for (size_t i = 0; i < carried.size(); i += 2) {
    const auto input = static_cast<size_t>(carried[i]);
    const auto output = static_cast<size_t>(i + 1 < carried.size() ? carried[i + 1] : -1);
    if (input >= form.inputs.size() || form.inputs[input] != LoopInput::same || output >= form.outputs.size())
      throw UsageError(fmt::format("loop: input {} cannot be carried from output {}", carried[i], output));
    form.inputs[input] = LoopInput::carried;
    form.carried[input] = output;
  }
  form.pipeline = pipeline_of(node);
  check_pipelined(node, form);
  return form;
}

Loop loop_of(const Node& node) {
  const LoopForm form = loop_form(node);
  const std::vector<std::string> inputs = input_names(*node.body), outputs = output_names(*node.body);
  Loop loop{.count = form.count,
            .scale = form.scale,
            .reversed = form.reversed,
            .stage = stage_of(node),
            .pipeline = form.pipeline};
  for (size_t i = 0; i < inputs.size(); ++i)
    if (form.inputs[i] == LoopInput::indexed) loop.indexed.insert(inputs[i]);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (form.outputs[i] == LoopOutput::stacked) loop.stacked.insert(outputs[i]);
    if (form.outputs[i] == LoopOutput::summed) loop.summed.insert(outputs[i]);
    if (form.in_f32[i]) loop.summed_in_f32.insert(outputs[i]);
  }
  for (const auto& [input, output] : form.carried) loop.carried[inputs[input]] = outputs[output];
  return loop;
}

Attributes attributes_of(const Loop& loop, const Graph& body) {
  const std::vector<std::string> inputs = input_names(body), outputs = output_names(body);
  std::vector<int64_t> carried;
  for (const auto& [input, output] : loop.carried) {
    carried.push_back(loop_position_of(input, inputs, "input"));
    carried.push_back(loop_position_of(output, outputs, "output"));
  }
  Attributes attributes = {{"count", int64_t{loop.count}},
                           {"indexed", loop_positions_of(loop.indexed, inputs, "input")},
                           {"carried", std::move(carried)},
                           {"stacked", loop_positions_of(loop.stacked, outputs, "output")},
                           {"summed", loop_positions_of(loop.summed, outputs, "output")}};
  if (!loop.summed_in_f32.empty())
    attributes["summed_in_f32"] = loop_positions_of(loop.summed_in_f32, outputs, "output");
  if (loop.scale != 1) attributes["scale"] = loop.scale;
  if (loop.reversed) attributes["reversed"] = int64_t{1};
  if (loop.stage) attributes["stage"] = int64_t{*loop.stage};
  if (loop.pipeline.kind != PipelineKind::sequential)
    attributes["pipeline"] = std::string(name_of(loop.pipeline.kind));
  if (const auto& stages = loop.pipeline.recomputed; !stages.empty())
    attributes["recomputed"] = as_integers(stages);
  if (const auto& elements = loop.pipeline.offload_from)
    attributes["offload_from"] =
        static_cast<int64_t>(std::min<uint64_t>(*elements, std::numeric_limits<int64_t>::max()));
  return attributes;
}

TensorType of_all_passes(TensorType type, uint32_t passes, std::string_view name) {
  if (type.elements() * passes > std::numeric_limits<uint32_t>::max())
    throw UsageError(
        fmt::format("{}: {} times {} has more than 2^32 - 1 elements", name, passes, to_string(type)));
  if (type.shape.empty()) type.shape = {1};
  type.shape.front() *= passes;
  return type;
}

std::map<ValueId, ValueId> same_inside(const Node& node) {
  const std::vector<ValueId> inputs = node.body->inputs();
  std::vector<LoopInput> kinds(inputs.size());
  if (is_loop(node)) kinds = loop_form(node).inputs;
  std::map<ValueId, ValueId> same;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (kinds[i] == LoopInput::same) same[inputs[i]] = node.inputs[i];
  return same;
}

void check_offloaded_sums(const Graph& function) {
  for (const ValueInfo& info : function.values())
    if (info.offloaded && info.node)
      throw UsageError(
          fmt::format("a function cannot have '{}', a sum over passes that lies in streaming memory: run its "
                      "loop where the function is called, or do not offload it",
                      info.name));
}

OpenedGraph opened(const Graph& graph) { return Opening().run(graph); }

}  // namespace tessera::graph
