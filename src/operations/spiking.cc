// Spiking layers over whole sequences, one after the other: an operation for the results and one for all
// gradients.
#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/host/spiking/codelet.h"
#include "lower/lowering.h"
#include "operations/list.h"
#include "operations/spike_lists.h"
#include "operations/spiking_node.h"
#include "ops/map/cast.h"
#include "ops/spiking/tiles/tiles.h"

namespace tessera::graph {
namespace {

using ops::Operand;
using ops::SpikingProblem;

bool is_spiking_gradients(std::string_view operation) { return operation == "spiking_gradients"; }
size_t first_parameter(std::string_view operation) {
  return is_spiking_gradients(operation) ? kGradientsParameters : kForwardParameters;
}

TensorType spiking_type_of(const ops::SpikingMatrix& matrix) {
  return {matrix.type, {matrix.rows, matrix.cols}, {}, {}};
}

// Shapes.

bool is_float(Type type) { return type == Type::f32 || type == Type::f16 || type == Type::bf16; }

void require_scalar(const Signature& s, size_t input, std::string_view name, bool integer) {
  const TensorType& type = s.inputs[input];
  if (type.elements() != 1 || (integer ? type.type != Type::u32 : !is_float(type.type)))
    throw UsageError(fmt::format("{}: {} is {}; it must be {}[]", s.operation, name, to_string(type),
                                 integer ? "u32" : "f32"));
}

/// The number of neurons that lists may name if layers made them, otherwise 0.
uint32_t listed_neurons(const Graph& graph, ValueId ids) {
  const auto& computed_by = graph.info(ids).node;
  if (!computed_by) return 0;
  const Node& node = graph.nodes()[*computed_by];
  uint32_t most = 0;
  if (node.operation->name == "spiking") {
    size_t output = 0;
    const std::vector<SpikingProblem> problems = spiking_problems_of(node, graph.type(node.inputs[0]));
    each_result(problems, [&](size_t layer, size_t, const ops::SpikingMatrix&) {
      if (node.outputs[output++] == ids) most = problems[layer].layer.neurons;
    });
    return most;
  }
  for (ValueId input : node.inputs)
    if (graph.type(input).type == Type::u16) most = std::max(most, listed_neurons(graph, input));
  return most;
}

/// Kernels trust lists made by layers.
void require_spiking_inputs(const Signature& s, const SpikingLayer& first) {
  if (s.graph == nullptr) return;
  if (const uint32_t neurons = listed_neurons(*s.graph, s.attributes.inputs[0]); neurons > first.inputs)
    throw UsageError(fmt::format("{}: the lists name {} neurons; the first layer has {} inputs", s.operation,
                                 neurons, first.inputs));
}

/// Throws UsageError unless lists and parameters fit the layers.
std::vector<SpikingProblem> check_spiking_inputs(const Signature& s) {
  require_lists(s, spiking_size(s.attributes, "batch"));
  require_scalar(s, kThreshold, "the gradient threshold", false);
  std::vector<SpikingProblem> problems = spiking_problems_of(s.attributes, s.inputs[0]);
  require_spiking_inputs(s, problems.front().layer);
  const std::vector<SpikingParameter> parameters = all_parameters(problems);
  const size_t first = first_parameter(s.operation);
  if (s.inputs.size() < first + parameters.size())
    throw UsageError(fmt::format("{}: the layers have {} parameters; given are {}", s.operation,
                                 parameters.size(), s.inputs.size() - first));
  for (size_t i = 0; i < parameters.size(); ++i) {
    const TensorType& type = s.inputs[first + i];
    if (!is_float(type.type) || type.pattern || type.rows() != parameters[i].rows ||
        type.cols() != parameters[i].cols)
      throw UsageError(fmt::format("{}: {} is {}; it must be f32[{}, {}]", s.operation, parameters[i].name,
                                   to_string(type), parameters[i].rows, parameters[i].cols));
  }
  return problems;
}

Types infer_spiking(const Signature& s) {
  const std::vector<SpikingProblem> problems = check_spiking_inputs(s);
  require_scalar(s, kMostListed, "most_listed", true);
  require_scalar(s, kStep, "the step", true);
  Types types;
  each_result(problems, [&](size_t, size_t, const ops::SpikingMatrix& matrix) {
    types.push_back(spiking_type_of(matrix));
  });
  return types;
}

/// Inputs: lists, ϑ_grad, parameters, all results, and the gradients of those that "upstream" lists: 1 for
/// each layer that has one. Outputs: gradients of the trained parameters, and of the lists.
Types infer_spiking_gradients(const Signature& s) {
  const std::vector<SpikingProblem> problems = check_spiking_inputs(s);
  size_t next = kGradientsParameters + all_parameters(problems).size();
  const auto require_next = [&](std::string_view name, const ops::SpikingMatrix& matrix) {
    if (next == s.inputs.size()) throw UsageError(fmt::format("{}: {} is missing", s.operation, name));
    require_type(s, s.inputs[next++], name, spiking_type_of(matrix));
  };
  each_result(problems,
              [&](size_t, size_t, const ops::SpikingMatrix& matrix) { require_next("a result", matrix); });
  const std::vector<int64_t>& upstream = s.attributes.list("upstream");
  if (upstream.size() != problems.size())
    throw UsageError(
        fmt::format("{}: {} of {} layers may have gradients", s.operation, upstream.size(), problems.size()));
  for (size_t layer = 0; layer < problems.size(); ++layer)
    if (upstream[layer] != 0) require_next("the gradient of a result", ops::upstream_of(problems[layer]));
  Types types;
  for (const size_t position : learned_positions(problems))
    types.push_back(s.inputs[kGradientsParameters + position]);
  types.push_back({Type::f32, s.inputs[0].shape, {}, {}});
  return types;
}

Gradients spiking_gradient(const Differentiation& d) {
  const std::vector<SpikingProblem> problems = spiking_problems_of(d.node, d.input(0).type());
  const size_t parameters = all_parameters(problems).size();
  std::vector<Value> inputs = {d.input(0), d.input(1), d.input(kThreshold)};
  for (size_t i = 0; i < parameters; ++i) inputs.push_back(d.input(kForwardParameters + i));
  for (size_t i = 0; i < d.node.outputs.size(); ++i) inputs.push_back(d.output(i));
  std::vector<int64_t> upstream;
  for (size_t layer = 0; layer < problems.size(); ++layer) {
    const size_t position = position_of(problems, layer, read_member(problems[layer])).value();
    upstream.push_back(d.dy[position] ? 1 : 0);
    if (d.dy[position]) inputs.push_back(*d.dy[position]);
  }
  if (std::ranges::count(upstream, 1) != std::ranges::count_if(d.dy, [](const auto& dy) { return !!dy; }))
    throw UsageError("spiking: only spikes and the potentials of a layer without them have gradients");
  Attributes attributes = d.node.attributes;
  attributes["upstream"] = upstream;
  const std::vector<Value> found = d.graph.apply("spiking_gradients", inputs, attributes);
  Gradients gradients(d.node.inputs.size());
  gradients[0] = found.back();
  const std::vector<size_t> positions = learned_positions(problems);
  for (size_t i = 0; i < positions.size(); ++i) gradients[kForwardParameters + positions[i]] = found[i];
  return gradients;
}

// Lowering.

/// On tiles, weights lie with their neurons, and lists of inputs sample by sample.
ops::SpikingTilePartition partition_of(const Node& node, const Graph& graph,
                                       const machine::Machine& machine) {
  if (graph.type(node.inputs[first_parameter(node.operation->name)]).type == Type::bf16)
    throw UsageError(fmt::format("{}: {} has no bf16", node.operation->name, machine.name));
  const std::vector<int64_t>& per_tile = node.list("neurons_per_tile");
  return ops::partition_spiking(spiking_problems_of(node, graph.type(node.inputs[0])), machine,
                                {per_tile.begin(), per_tile.end()});
}

std::vector<LayoutChoice> spiking_layouts(Lowering& l, const Node& node) {
  std::vector<LayoutChoice> choices = row_layouts(l, node);
  if (l.on_host()) return choices;
  const std::vector<SpikingProblem> problems = spiking_problems_of(node, l.graph().type(node.inputs[0]));
  const ops::SpikingTilePartition partition = partition_of(node, l.graph(), l.builder().machine());
  auto& mappings = choices[0].mappings;
  mappings.resize(node.inputs.size());
  mappings[0] = ops::map_lists(partition.layers[0], problems[0].steps, problems[0].in_capacity);
  mappings[1] = ops::map_lists(partition.layers[0], problems[0].steps, 2);
  size_t next = first_parameter(node.operation->name);
  for (size_t i = 0; i < problems.size(); ++i)
    for (const SpikingParameter& parameter : parameters_of(problems[i].layer)) {
      if (parameter.name == "weight" || parameter.name == "recurrent")
        mappings[next] = ops::map_neurons(partition.layers[i], parameter.rows);
      ++next;
    }
  return choices;
}

/// The row of control words.
Operand control_of(Lowering& l, const Node& node, const SpikingProblem& problem) {
  const ops::SpikingMatrix row = ops::control_of(problem);
  const Operand control = l.temporary("control", row.type, row.rows, row.cols);
  const auto part = [&](uint32_t first, uint32_t count) { return control.part({0, 1, first, count}); };
  const auto seed = static_cast<uint64_t>(node.integer("seed"));
  const Operand seeds =
      l.constant_words("seed", {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  program::CopySet set{"control",
                       {copy_of(l.input(kMostListed), part(kernels::spiking_control::limit, 1)),
                        copy_of(seeds, part(kernels::spiking_control::seed_low, 2)),
                        copy_of(l.input(kStep), part(kernels::spiking_control::step, 1))}};
  if (problem.substream_words > 0)
    l.copy_substream(set, part(kernels::spiking_control::count, problem.substream_words));
  l.run(l.builder().copy(std::move(set)));
  return control;
}

std::vector<SpikingProblem> problems_of(const Lowering& l, const Node& node) {
  return spiking_problems_of(node, l.graph().type(node.inputs[0]));
}

bool is_weight(const SpikingParameter& parameter) {
  return parameter.name == "weight" || parameter.name == "recurrent";
}

/// Tiles read weights in 16 bits where they lie.
ops::SpikingStackOperands inputs_of(Lowering& l, const Node& node,
                                    const std::vector<SpikingParameter>& parameters) {
  ops::SpikingStackOperands o;
  o.in_ids = l.input(0);
  o.in_num = l.input(1);
  const size_t first = first_parameter(node.operation->name);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Operand given = l.input(first + i);
    const bool stays = !l.on_host() && is_weight(parameters[i]);
    o.parameters.push_back(stays ? given : l.as_type(given, Type::f32));
  }
  return o;
}

/// On tiles: layers step together, and what gradients read stays where it is.
void lower_on_tiles(Lowering& l, const Node& node, const std::vector<SpikingProblem>& problems,
                    ops::SpikingStackOperands o) {
  const std::vector<SpikingProblem> all = problems_of(l, node);
  size_t output = 0;
  each_result(all, [&](size_t layer, size_t member, const ops::SpikingMatrix&) {
    const bool is_given =
        member == kIds || member == kNum || member == kDropped || member == read_member(all[layer]);
    for (const auto& [name, id] : l.graph().outputs())
      if (id == node.outputs[output] && !is_given)
        throw UsageError(
            fmt::format("'{}' stays on the tiles: of spiking layers on {} only lists, and "
                        "potentials of a last layer without spikes can be outputs",
                        name, l.builder().machine().name));
    ++output;
  });
  const auto position = [&](size_t layer, size_t member) { return position_of(all, layer, member).value(); };
  const size_t last = all.size() - 1;
  const ops::SpikingTilePartition partition = partition_of(node, l.graph(), l.builder().machine());
  if (!all[last].layer.neuron.spikes)
    o.layers[last].potentials =
        l.output(position(last, kPotentials),
                 ops::map_lists(partition.layers[0], all[last].steps, all[last].layer.neurons));
  const ops::SpikingTileForward forward = ops::build_spiking_on_tiles(l.builder(), problems, partition, o);
  l.run(forward.step);
  for (size_t layer = 0; layer < all.size(); ++layer) {
    if (!all[layer].layer.neuron.spikes) continue;
    const ops::SpikingTileResults& r = forward.layers[layer];
    l.alias_output(position(layer, kIds), forward.steps_of(*r.ids, layer, all[layer].steps));
    l.alias_output(position(layer, kNum), forward.steps_of(*r.num, layer, all[layer].steps));
    l.alias_output(position(layer, kDropped), *r.dropped);
  }
  l.add_side_result(node.outputs[0], forward);
}

/// Whether a forward pass keeps the results that gradients need: only if something reads them.
bool trains(const Lowering& l, const Node& node, const std::vector<SpikingProblem>& problems) {
  bool is_read = false;
  size_t position = 0;
  each_result(problems, [&](size_t layer, size_t member, const ops::SpikingMatrix&) {
    const bool is_result =
        member == kIds || member == kNum || member == kDropped || member == read_member(problems[layer]);
    is_read |= !is_result && l.is_used(node.outputs[position]);
    ++position;
  });
  return is_read;
}

void lower_spiking(Lowering& l, const Node& node) {
  const std::vector<SpikingProblem> problems = problems_of(l, node);
  std::vector<SpikingProblem> built = problems;
  for (SpikingProblem& problem : built) {
    problem.trains = trains(l, node, problems);
    problem.substream_words = l.substream_words();
  }
  ops::SpikingStackOperands o = inputs_of(l, node, all_parameters(problems));
  o.control = control_of(l, node, built.front());
  o.gradient_threshold = l.as_type(l.input(kThreshold), Type::f32);
  o.layers.resize(problems.size());
  if (!l.on_host()) return lower_on_tiles(l, node, built, std::move(o));
  size_t position = 0;
  each_result(problems, [&](size_t layer, size_t member, const ops::SpikingMatrix&) {
    const bool is_built = !(ops::results_of(built[layer]).*ops::kSpikingResults[member].matrix).empty();
    if (is_built) o.layers[layer].*ops::kSpikingResults[member].operand = l.output(position);
    ++position;
  });
  l.run(ops::build_spiking_stack(l.builder(), built, o).step);
}

/// Where gradients of parameters are computed: in FP32, and on tiles beside the weights.
class ParameterGradients {
 public:
  ParameterGradients(Lowering& l, const Node& node) : l_(l), node_(node) {}

  Operand add(size_t output, const std::vector<program::MappedBox>& mapping) {
    if (l_.graph().type(node_.outputs[output]).type == Type::f32) return l_.output(output, mapping);
    const Operand to = l_.output(output, mapping);
    rounded_.emplace_back(l_.builder().temporary("gradient", Type::f32, to.rows(), to.cols(),
                                                 l_.on_host() ? std::vector<program::MappedBox>() : mapping,
                                                 program::Purpose::gradient),
                          to);
    return rounded_.back().first;
  }
  void round() const {
    for (const auto& [from, to] : rounded_) {
      const ops::MapPartition in_place = ops::partition_as_it_lies(l_.builder(), to);
      if (in_place.boxes.empty()) {
        l_.convert_type(from, to);
        continue;
      }
      const ops::CastProblem cast{Type::f32, l_.builder().type_of(to), to.rows(), to.cols()};
      l_.run(ops::build_map(l_.builder(), ops::operation_of(cast), {in_place, {}, {}},
                            std::vector<Operand>{from, to}));
    }
  }

 private:
  Lowering& l_;
  const Node& node_;
  std::vector<std::pair<Operand, Operand>> rounded_;
};

void lower_spiking_gradients(Lowering& l, const Node& node) {
  const std::vector<SpikingProblem> problems = problems_of(l, node);
  const std::vector<SpikingParameter> parameters = all_parameters(problems);
  ops::SpikingStackOperands o = inputs_of(l, node, parameters);
  o.layers.resize(problems.size());
  size_t next = kGradientsParameters + parameters.size();
  const auto* forward = l.side_result<ops::SpikingTileForward>(node.inputs[next]);
  if (!l.on_host() && forward == nullptr)
    throw UsageError("gradients of spiking layers on tiles follow their forward pass in the same graph");
  each_result(problems, [&](size_t layer, size_t member, const ops::SpikingMatrix&) {
    if (l.on_host() && member != kDropped)
      o.layers[layer].*ops::kSpikingResults[member].operand = l.input(next);
    ++next;
  });
  for (size_t layer = 0; layer < problems.size(); ++layer)
    if (node.list("upstream").at(layer) != 0) o.layers[layer].upstream = l.input(next++);
  ParameterGradients gradients(l, node);
  size_t output = 0;
  for (size_t layer = 0; layer < problems.size(); ++layer)
    for (const SpikingParameter& parameter : ops::learned_parameters(problems[layer])) {
      const bool is_mapped = forward != nullptr && is_weight(parameter);
      o.parameter_gradients.push_back(gradients.add(
          output++, is_mapped ? ops::map_neurons(forward->partition.layers[layer], parameter.rows)
                              : std::vector<program::MappedBox>()));
    }
  if (l.is_used(node.outputs.back())) o.din = l.output(output);
  l.run(forward != nullptr ? ops::build_spiking_gradients_on_tiles(l.builder(), problems, *forward, o)
                           : ops::build_spiking_stack_gradients(l.builder(), problems, o).step);
  gradients.round();
}

Attributes spiking_attributes_of(const std::vector<SpikingLayer>& layers, uint32_t batch, bool learns,
                                 std::vector<int64_t> capacities = {}) {
  return {{"layers", words_of(layers)},
          {"batch", int64_t{batch}},
          {"capacities", std::move(capacities)},
          {"learns_dynamics", int64_t{learns}},
          {"seed", int64_t{9}},
          {"stream", int64_t{4}},
          {"expected_input_activity", 0.1},
          {"expected_activity", 0.2},
          {"neurons_per_tile", std::vector<int64_t>()}};
}

Array spread(uint64_t count, double low, double high) {
  Array values;
  for (uint64_t i = 0; i < count; ++i)
    values.push_back(static_cast<float>(low + (high - low) * static_cast<double>(i * 37 % 101) / 101));
  return values;
}

/// A forward pass of lists of 12 of 40 inputs.
Case spiking_case_of(const std::vector<SpikingLayer>& layers, bool learns, bool hosts_only,
                     std::vector<int64_t> capacities = {}) {
  constexpr uint32_t kSteps = 12, kBatch = 5, kCapacity = 12;
  Case c{.inputs = {},
         .attributes = spiking_attributes_of(layers, kBatch, learns, std::move(capacities)),
         .differentiable = false,
         .hosts_only = hosts_only};
  add_lists(c, kSteps, kBatch, kCapacity, layers[0].inputs);
  c.inputs.insert(c.inputs.end(),
                  {{Type::f32, {}, {}, {}}, {Type::u32, {}, {}, {}}, {Type::u32, {}, {}, {}}});
  c.given[kThreshold] = {0.5};
  c.given[kMostListed] = {1000};
  c.given[kStep] = {3};
  for (const SpikingLayer& layer : layers)
    for (const SpikingParameter& parameter : parameters_of(layer)) {
      const bool is_weight = parameter.name == "weight" || parameter.name == "recurrent";
      c.given[c.inputs.size()] = parameter.name == "threshold" ? spread(parameter.elements(), 0.9, 1.1)
                                 : is_weight                   ? spread(parameter.elements(), -0.4, 0.7)
                                                               : spread(parameter.elements(), 0.7, 0.95);
      c.inputs.push_back({Type::f32, {parameter.rows, parameter.cols}, {}, {}});
    }
  return c;
}

SpikingLayer leaky(uint32_t inputs, uint32_t neurons) {
  return {.inputs = inputs, .neurons = neurons, .neuron = {.spikes = false}};
}

std::vector<Case> spiking_cases() {
  const SpikingLayer hidden{.inputs = 40, .neurons = 30};
  SpikingLayer everything = hidden;
  everything.neuron = {.synaptic = true,
                       .adaptive = true,
                       .reset = Reset::subtract,
                       .reset_gradient = ResetGradient::gated,
                       .surrogate = {SurrogateFamily::arctan, 1},
                       .gain = 0.5F,
                       .adaptation_decay = 0.9F,
                       .adaptation_strength = 0.2F};
  everything.recurrent = everything.decay_per_neuron = everything.threshold_per_neuron = true;
  return {spiking_case_of({leaky(40, 7)}, false, false), spiking_case_of({hidden, leaky(30, 7)}, false, true),
          spiking_case_of({hidden, {.inputs = 30, .neurons = 9, .delay = 1}}, true, true, {8, 0}),
          spiking_case_of({everything, leaky(30, 7)}, true, true)};
}

std::vector<Case> spiking_gradients_cases() {
  Case c{.inputs = {}, .attributes = spiking_attributes_of({leaky(40, 7)}, 5, false), .hosts_only = true};
  const Case forward = spiking_case_of({leaky(40, 7)}, false, true);
  for (size_t i = 0; i < forward.inputs.size(); ++i) {
    if (i == kMostListed || i == kStep) continue;
    if (const auto given = forward.given.find(i); given != forward.given.end())
      c.given[c.inputs.size()] = given->second;
    c.inputs.push_back(forward.inputs[i]);
  }
  c.attributes["upstream"] = std::vector<int64_t>{1};
  const TensorType potentials{Type::f32, {12, 5 * 7}, {}, {}};
  c.inputs.insert(c.inputs.end(), {potentials, potentials});
  return {c};
}

constexpr size_t kAnyParameters = ~size_t{0};

ListOperands spiking_lists(const Graph& graph, const Node& node) {
  return {spiking_size(node, "batch"),
          spiking_problems_of(node, graph.type(node.inputs[0])).front().layer.inputs};
}

constexpr Operation kSpiking[] = {
    {.name = "spiking",
     .least_inputs = kForwardParameters,
     .most_inputs = kAnyParameters,
     .infer = infer_spiking,
     .gradient = spiking_gradient,
     .reference = spiking_reference,
     .layouts = spiking_layouts,
     .lower = lower_spiking,
     .cases = spiking_cases,
     .traits = {.has_substreams = [](const Node&) { return true; }, .lists = spiking_lists}},
    {"spiking_gradients",
     kGradientsParameters,
     kAnyParameters,
     infer_spiking_gradients,
     nullptr,
     spiking_gradients_reference,
     spiking_layouts,
     lower_spiking_gradients,
     spiking_gradients_cases,
     {.lists = spiking_lists}},
};

}  // namespace

std::span<const Operation> spiking_operations() { return kSpiking; }

Spikes spike_input(Graph& graph, const std::string& name, uint32_t steps, uint32_t batch, uint32_t capacity) {
  return {graph.input(name + ".ids", {steps, batch * capacity}, Type::u16),
          graph.input(name + ".num", {steps, batch * 2}, Type::u32), batch};
}

SpikingResults spiking(const Spikes& in, const std::vector<SpikingLayer>& layers,
                       const std::vector<Value>& parameters, const SpikingOptions& options) {
  Graph& graph = *in.ids.graph;
  const auto scalar = [&](const std::optional<Value>& given, float otherwise, Type type) {
    return given ? *given : graph.constant("", {}, {otherwise}, type);
  };
  std::vector<Value> inputs = {
      in.ids, in.num, scalar(options.gradient_threshold, -std::numeric_limits<float>::infinity(), Type::f32),
      scalar(options.most_listed, 1 << 16, Type::u32), scalar(options.step, 0, Type::u32)};
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  const Attributes attributes = {{"layers", words_of(layers)},
                                 {"batch", int64_t{in.batch}},
                                 {"capacities", as_integers(options.capacities)},
                                 {"learns_dynamics", int64_t{options.learns_dynamics}},
                                 {"seed", static_cast<int64_t>(options.seed)},
                                 {"stream", static_cast<int64_t>(graph.nodes().size())},
                                 {"expected_input_activity", options.expected_input_activity},
                                 {"expected_activity", options.expected_activity},
                                 {"neurons_per_tile", as_integers(options.neurons_per_tile)}};
  const std::vector<Value> outputs = graph.apply("spiking", inputs, attributes);
  Node node;
  node.attributes = attributes;
  const std::vector<SpikingProblem> problems = spiking_problems_of(node, in.ids.type());
  SpikingResults results;
  for (size_t l = 0; l < layers.size(); ++l) {
    const auto of = [&](size_t member) { return outputs[position_of(problems, l, member).value()]; };
    if (!layers[l].neuron.spikes) {
      results.potentials = of(kPotentials);
      continue;
    }
    results.spikes.push_back({of(kIds), of(kNum), in.batch});
    results.dropped.push_back(of(kDropped));
  }
  return results;
}

std::vector<Value> spiking_parameters(Graph& graph, const std::string& name,
                                      const std::vector<SpikingLayer>& layers, const SpikingInitial& initial,
                                      Type weights) {
  std::vector<Value> parameters;
  for (size_t l = 0; l < layers.size(); ++l)
    for (const SpikingParameter& parameter : parameters_of(layers[l])) {
      const double root = std::sqrt(double{1} * parameter.rows);
      const Initial contents = parameter.name == "weight"          ? Initial::normal(initial.weight / root)
                               : parameter.name == "recurrent"     ? Initial::normal(initial.recurrent / root)
                               : parameter.name == "decay"         ? Initial::constant(initial.decay)
                               : parameter.name == "current_decay" ? Initial::constant(initial.current_decay)
                                                                   : Initial::constant(initial.threshold);
      parameters.push_back(graph.parameter(fmt::format("{}.{}.{}", name, l, parameter.name),
                                           {parameter.rows, parameter.cols}, contents,
                                           is_weight(parameter) ? weights : Type::f32));
    }
  return parameters;
}

Value readout(Value potentials, uint32_t batch, Readout of) {
  const uint32_t steps = potentials.type().rows(), neurons = potentials.type().cols() / batch;
  const Value row = of == Readout::last      ? slice(potentials, 0, steps - 1, steps)
                    : of == Readout::maximum ? max(potentials, {0})
                                             : mean(potentials, {0});
  return reshape(row, {batch, neurons});
}

}  // namespace tessera::graph
