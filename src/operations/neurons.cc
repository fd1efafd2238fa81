// Spiking neurons that take currents over whole sequences.
#include "ops/spiking/neurons.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <cmath>
#include <cstddef>
#include <functional>

#include "kernels/common/spiking_neuron.h"
#include "lower/lowering.h"
#include "operations/list.h"
#include "operations/spike_lists.h"
#include "operations/spiking_node.h"

namespace tessera::graph {
namespace {

using ops::NeuronsProblem;
using ops::Operand;

// Inputs: currents, dynamics [3, neurons], and weights [neurons, neurons] if they are recurrent. Outputs: u,
// spikes if they have any, i if they are synaptic.
constexpr size_t kNeuronCurrents = 0, kNeuronDynamics = 1, kNeuronRecurrent = 2;

/// The problem of a node's neurons, for sequences of this type.
NeuronsProblem neurons_problem_of(const Node& node, const TensorType& currents, bool gradients) {
  const std::vector<int64_t>& words = node.list("neuron");
  if (words.size() != kernels::spiking_neuron_params)
    throw UsageError(fmt::format("{}: {} numbers describe a neuron; it takes {}", node.operation->name,
                                 words.size(), kernels::spiking_neuron_params));
  const kernels::SpikingNeuron neuron(std::span<const int64_t, kernels::spiking_neuron_params>{words});
  const uint32_t batch = spiking_size(node, "batch");
  return {.neuron = neuron,
          .neurons = currents.cols() / batch,
          .steps = currents.rows(),
          .batch = batch,
          .recurrence = neuron.recurrent ? Recurrence::all_to_all : Recurrence::none,
          .gradients = gradients};
}

bool recurs(const NeuronsProblem& p) { return p.recurrence != Recurrence::none; }
size_t inputs_of(const NeuronsProblem& p) { return recurs(p) ? 3 : 2; }
size_t outputs_of(const NeuronsProblem& p) {
  return 1U + (p.neuron.spikes ? 1 : 0) + (p.neuron.synaptic ? 1 : 0);
}

NeuronsProblem check_neurons_inputs(const Signature& s) {
  const TensorType& currents = s.inputs[kNeuronCurrents];
  const uint32_t batch = spiking_size(s.attributes, "batch");
  if (currents.type != Type::f32 || currents.shape.size() != 2 || currents.cols() % batch != 0)
    throw UsageError(fmt::format("{}: currents are {}; they must be f32[steps, {} · neurons]", s.operation,
                                 to_string(currents), batch));
  const NeuronsProblem p = neurons_problem_of(s.attributes, currents, false);
  require_type(s, s.inputs[kNeuronDynamics], "dynamics", {Type::f32, {3, p.neurons}, {}, {}});
  if (recurs(p) && s.inputs.size() > kNeuronRecurrent)
    require_type(s, s.inputs[kNeuronRecurrent], "recurrent", {Type::f32, {p.neurons, p.neurons}, {}, {}});
  return p;
}

Types infer_neurons(const Signature& s) {
  const NeuronsProblem p = check_neurons_inputs(s);
  if (s.inputs.size() != inputs_of(p))
    throw UsageError(fmt::format("{}: {} inputs; these neurons take currents, dynamics{}", s.operation,
                                 s.inputs.size(), recurs(p) ? " and recurrent weights" : ""));
  return Types(outputs_of(p), s.inputs[kNeuronCurrents]);
}

/// Inputs: those of the forward pass, its outputs, and gradients of its outputs as far as "upstream" has a 1.
Types infer_neurons_gradients(const Signature& s) {
  const NeuronsProblem p = check_neurons_inputs(s);
  const std::vector<int64_t>& upstream = s.attributes.list("upstream");
  if (upstream.size() != outputs_of(p))
    throw UsageError(
        fmt::format("{}: {} of {} outputs may have gradients", s.operation, upstream.size(), outputs_of(p)));
  size_t given = inputs_of(p) + outputs_of(p);
  for (const int64_t flag : upstream) given += flag != 0 ? 1 : 0;
  if (s.inputs.size() != given)
    throw UsageError(fmt::format("{}: {} inputs; it takes {}", s.operation, s.inputs.size(), given));
  return {s.inputs.begin(), s.inputs.begin() + static_cast<std::ptrdiff_t>(inputs_of(p))};
}

Gradients neurons_gradient(const Differentiation& d) {
  std::vector<Value> inputs;
  for (size_t i = 0; i < d.node.inputs.size(); ++i) inputs.push_back(d.input(i));
  for (size_t i = 0; i < d.node.outputs.size(); ++i) inputs.push_back(d.output(i));
  std::vector<int64_t> upstream;
  for (const auto& dy : d.dy) {
    upstream.push_back(dy ? 1 : 0);
    if (dy) inputs.push_back(*dy);
  }
  Attributes attributes = d.node.attributes;
  attributes["upstream"] = upstream;
  const std::vector<Value> found = d.graph.apply("spiking_neurons_gradients", inputs, attributes);
  return {found.begin(), found.end()};
}

// Reference: a layer in which each neuron has its own input.

SpikingLayer layer_of(const NeuronsProblem& p) {
  return {.inputs = p.neurons, .neurons = p.neurons, .neuron = p.neuron, .recurrent = recurs(p)};
}

ops::SpikingValues values_of(const NeuronsProblem& p, const Evaluation& e) {
  ops::SpikingValues values;
  values.weight.assign(uint64_t{p.neurons} * p.neurons, 0);
  for (uint64_t n = 0; n < p.neurons; ++n) values.weight[n * p.neurons + n] = 1;
  const Array& dynamics = *e.inputs[kNeuronDynamics];
  const auto row = [&](uint32_t r) {
    return std::vector<double>(dynamics.begin() + int64_t{r} * p.neurons,
                               dynamics.begin() + int64_t{r + 1} * p.neurons);
  };
  values.decay = row(0);
  values.current_decay = row(1);
  values.threshold = row(2);
  if (recurs(p)) values.recurrent = *e.inputs[kNeuronRecurrent];
  return values;
}

ops::Sequence sequence_of(const NeuronsProblem& p, const Array& values) {
  ops::Sequence sequence(p.steps, p.batch, p.neurons);
  sequence.values = values;
  return sequence;
}

std::vector<Array> neurons_reference(const Evaluation& e) {
  const NeuronsProblem p = neurons_problem_of(e.node, e.input_type(kNeuronCurrents), false);
  const ops::SpikingTrace trace =
      ops::run_layer(layer_of(p), values_of(p, e), {}, sequence_of(p, *e.inputs[kNeuronCurrents]));
  std::vector<Array> outputs = {trace.u.values};
  if (p.neuron.spikes) outputs.push_back(trace.spikes.values);
  if (p.neuron.synaptic) outputs.push_back(trace.current.values);
  return outputs;
}

std::vector<Array> gradients_reference(const Evaluation& e) {
  const NeuronsProblem p = neurons_problem_of(e.node, e.input_type(kNeuronCurrents), false);
  const SpikingLayer layer = layer_of(p);
  const ops::SpikingValues values = values_of(p, e);
  const ops::Sequence in = sequence_of(p, *e.inputs[kNeuronCurrents]);
  const std::vector<int64_t>& upstream = e.node.list("upstream");
  size_t next = inputs_of(p) + outputs_of(p);
  ops::SpikingUpstream dense;
  if (upstream[0] != 0) dense.before = sequence_of(p, *e.inputs[next++]);
  if (p.neuron.spikes && upstream[1] != 0) dense.spikes = sequence_of(p, *e.inputs[next++]);
  if (p.neuron.synaptic && upstream.back() != 0) dense.current = sequence_of(p, *e.inputs[next++]);
  const ops::SpikingGradients g =
      ops::differentiate_layer(layer, values, {}, in, ops::run_layer(layer, values, {}, in), dense);
  Array dynamics = g.values.decay;
  dynamics.insert(dynamics.end(), g.values.current_decay.begin(), g.values.current_decay.end());
  dynamics.insert(dynamics.end(), g.values.threshold.begin(), g.values.threshold.end());
  std::vector<Array> found = {g.in.values, dynamics};
  if (layer.recurrent) found.push_back(g.values.recurrent);
  return found;
}

// Lowering.

/// Operands from the inputs or outputs of the forward pass.
void add_results(const NeuronsProblem& p, const std::function<Operand()>& next, ops::NeuronsOperands& o) {
  o.potentials = next();
  if (p.neuron.spikes) o.spikes = next();
  if (p.neuron.synaptic) o.currents = next();
}

void lower_neurons(Lowering& l, const Node& node) {
  const NeuronsProblem p = neurons_problem_of(node, l.graph().type(node.inputs[kNeuronCurrents]), false);
  ops::NeuronsOperands o{.in = l.input(kNeuronCurrents), .dynamics = l.input(kNeuronDynamics)};
  if (recurs(p)) o.recurrent = l.input(kNeuronRecurrent);
  size_t output = 0;
  add_results(
      p, [&] { return l.output(output++); }, o);
  l.run(ops::build_neurons(l.builder(), p, ops::plan_neurons(p, o, l.builder().machine()), o));
}

void lower_neurons_gradients(Lowering& l, const Node& node) {
  const NeuronsProblem p = neurons_problem_of(node, l.graph().type(node.inputs[kNeuronCurrents]), true);
  ops::NeuronsOperands o{.dynamics = l.input(kNeuronDynamics)};
  size_t input = kNeuronRecurrent, output = kNeuronDynamics;
  o.din = l.output(0);
  const Operand ddynamics = l.output(output++);
  if (l.is_used(node.outputs[kNeuronDynamics])) o.ddynamics = ddynamics;
  if (recurs(p)) {
    o.recurrent = l.input(input++);
    o.drecurrent = l.output(output);
  }
  add_results(
      p, [&] { return l.input(input++); }, o);
  o.spikes.reset();
  if (!o.ddynamics) o.currents.reset();
  const std::vector<int64_t>& upstream = node.list("upstream");
  size_t position = 0;
  const auto next = [&]() -> std::optional<Operand> {
    if (upstream.at(position++) == 0) return {};
    return l.input(input++);
  };
  o.dpotentials = next();
  if (p.neuron.spikes) o.dspikes = next();
  if (p.neuron.synaptic) o.dcurrents = next();
  l.run(ops::build_neurons(l.builder(), p, ops::plan_neurons(p, o, l.builder().machine()), o));
}

// Cases.

std::vector<int64_t> neurons_words_of(const Neuron& neuron, bool recurrent) {
  const kernels::SpikingNeuronParams params = kernels::spiking_params(neuron, recurrent);
  return {std::begin(params.values), std::end(params.values)};
}

Case neurons_case_of(const Neuron& neuron, bool recurrent) {
  constexpr uint32_t kSteps = 9, kBatch = 5, kNeurons = 13;
  Case c{.inputs = {{Type::f32, {kSteps, kBatch * kNeurons}, {}, {}}, {Type::f32, {3, kNeurons}, {}, {}}},
         .attributes = {{"neuron", neurons_words_of(neuron, recurrent)}, {"batch", int64_t{kBatch}}},
         .low = -0.5,
         .high = 1,
         .differentiable = !neuron.spikes && !neuron.synaptic,
         .hosts_only = true};
  if (recurrent) c.inputs.push_back({Type::f32, {kNeurons, kNeurons}, {}, {}});
  return c;
}

constexpr Neuron kSynaptic = {.synaptic = true,
                              .reset = Reset::subtract,
                              .reset_gradient = ResetGradient::attached,
                              .surrogate = {SurrogateFamily::arctan, 1}};

std::vector<Case> neurons_cases() {
  return {neurons_case_of({.spikes = false}, false), neurons_case_of({}, false),
          neurons_case_of(kSynaptic, true)};
}

std::vector<Case> neurons_gradients_cases() {
  Case c = neurons_case_of({.spikes = false}, false);
  c.attributes["upstream"] = std::vector<int64_t>{1};
  c.inputs.insert(c.inputs.end(), {c.inputs[0], c.inputs[0]});
  c.differentiable = false;
  // Potentials of currents of 1, with a decay of 1/2.
  const TensorType& type = c.inputs[0];
  c.given[kNeuronCurrents] = Array(type.elements(), 1);
  c.given[kNeuronDynamics] = Array(c.inputs[kNeuronDynamics].elements(), 0.5);
  for (uint32_t t = 0; t < type.rows(); ++t)
    c.given[2].insert(c.given[2].end(), type.cols(), 2 - std::exp2(-int(t)));
  return {c};
}

constexpr size_t kAnyNumber = ~size_t{0};

constexpr Operation kNeurons[] = {
    {"spiking_neurons", 2, 3, infer_neurons, neurons_gradient, neurons_reference, row_layouts, lower_neurons,
     neurons_cases},
    {"spiking_neurons_gradients", 3, kAnyNumber, infer_neurons_gradients, nullptr, gradients_reference,
     row_layouts, lower_neurons_gradients, neurons_gradients_cases},
};

}  // namespace

std::span<const Operation> neurons_operations() { return kNeurons; }

NeuronValues spiking_neurons(Value currents, const Neuron& neuron, const std::vector<Value>& parameters,
                             std::optional<Value> recurrent) {
  Graph& g = *currents.graph;
  const Shape shape = currents.shape();
  if (shape.size() != 3)
    throw UsageError(fmt::format("spiking_neurons: currents are {}; they must be f32[steps, batch, neurons]",
                                 to_string(currents.type())));
  const size_t wanted = 1U + (neuron.synaptic ? 1 : 0) + (neuron.spikes ? 1 : 0);
  if (parameters.size() != wanted)
    throw UsageError(fmt::format("spiking_neurons: {} parameters; these neurons have a decay{}{}",
                                 parameters.size(), neuron.synaptic ? ", one of currents" : "",
                                 neuron.spikes ? ", a threshold" : ""));
  const auto row = [&](Value of) {
    const std::vector<int64_t> all = {1, shape[2]};
    return of.type().cols() == shape[2] ? reshape(of, {1, shape[2]})
                                        : g.apply("expand", {of}, {{"shape", all}})[0];
  };
  const Value none = g.constant("", {1, shape[2]}, std::vector<float>(shape[2]));
  const Value dynamics = concatenate({row(parameters[0]), neuron.synaptic ? row(parameters[1]) : none,
                                      neuron.spikes ? row(parameters.back()) : none},
                                     0);
  std::vector<Value> inputs = {reshape(currents, {shape[0], shape[1] * shape[2]}), dynamics};
  if (recurrent) inputs.push_back(*recurrent);
  const std::vector<Value> outputs =
      g.apply("spiking_neurons", inputs,
              {{"neuron", neurons_words_of(neuron, recurrent.has_value())}, {"batch", int64_t{shape[1]}}});
  NeuronValues values{.potentials = reshape(outputs[0], shape)};
  if (neuron.spikes) values.spikes = reshape(outputs[1], shape);
  return values;
}

}  // namespace tessera::graph
