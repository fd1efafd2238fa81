#include "ops/spiking/neurons.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <string>

#include "kernels/host/spiking/neurons.h"
#include "ops/batch_fields.h"
#include "ops/map/elementwise.h"

namespace tessera::ops {
namespace {

using kernels::NeuronsShape;
using machine::Machine;
using program::FieldView;
using program::StepId;

const program::Codelet& codelet_of(const NeuronsProblem& p) {
  return p.gradients ? kernels::neurons_gradients_codelet : kernels::neurons_forward_codelet;
}

std::vector<int64_t> params_of(const NeuronsProblem& p) {
  std::vector<int64_t> params;
  for (const int64_t value : kernels::spiking_params(p.neuron, p.recurrence != Recurrence::none).values)
    params.push_back(value);
  params.push_back(p.after_reset ? 1 : 0);
  return params;
}

size_t scratch_floats(const NeuronsProblem& p, uint32_t samples) {
  const NeuronsShape shape{.steps = p.steps,
                           .samples = samples,
                           .neurons = p.neurons,
                           .one_to_one = p.recurrence == Recurrence::one_to_one || p.neurons == 1,
                           .all_to_all = p.recurrence == Recurrence::all_to_all && p.neurons > 1};
  return kernels::NeuronsScratch(shape, p.gradients).floats;
}

void check(const NeuronsProblem& p) {
  // What holds for neurons of a layer, whatever its inputs.
  parameters_of(
      {.inputs = 1, .neurons = p.neurons, .neuron = p.neuron, .recurrent = p.recurrence != Recurrence::none});
  if (p.neuron.adaptive) throw UsageError("neurons that take currents have no adaptive threshold");
  if (p.steps == 0 || p.batch == 0 || uint64_t{p.batch} * p.neurons >> 32 != 0)
    throw UsageError(
        fmt::format("neurons have {} steps, and {} samples of {}; there must be a step and a sample, and at "
                    "most {} neurons in a batch",
                    p.steps, p.batch, p.neurons, ~0U));
}

void check_operands(const Builder& builder, const NeuronsProblem& p, const NeuronsOperands& o) {
  if (!o.dynamics || !(p.gradients ? o.din : o.in))
    throw UsageError("neurons need operands for their dynamics, and for currents or their gradient");
  if (o.recurrent.has_value() != (p.recurrence != Recurrence::none))
    throw UsageError("recurrent neurons need their weights, and others take none");
  const bool learns = o.ddynamics.has_value();
  const bool reads = p.neuron.spikes || learns;
  if (p.gradients && ((reads && !o.potentials) || (learns && p.neuron.synaptic && !o.currents)))
    throw UsageError("gradients of neurons that spike or learn need their potentials, and currents if any");
  if (!p.neuron.synaptic && (o.currents || o.dcurrents))
    throw UsageError("neurons without a synaptic current take no operand for one");
  if (!p.neuron.spikes && (o.spikes || o.dspikes))
    throw UsageError("neurons without spikes take no operand for them");
  for (const NeuronsOperand& of : neurons_operands(p.gradients))
    if (const std::optional<Operand>& operand = o.*of.operand)
      builder.require(*operand, of.name, Type::f32, of.rows(p), of.cols(p, p.batch));
}

PlanCandidate evaluate(const NeuronsProblem& p, const NeuronsOperands& o, const BatchPartition& partition,
                       const Machine& m) {
  const uint32_t samples = partition.most_samples();
  std::vector<FieldView> fields;
  double summed = 0;
  for (const NeuronsOperand& of : neurons_operands(p.gradients)) {
    fields.push_back(o.*of.operand ? field_of(of.rows(p), of.cols(p, samples)) : FieldView{});
    if (of.is_result && !of.has_samples()) summed += static_cast<double>(fields.back().elements());
  }
  fields.push_back(field_of(1, 1));
  const std::vector<int64_t> params = params_of(p);
  double reduction_seconds = 0;
  if (partition.parts() > 1 && summed > 0)
    reduction_seconds = plan(BinaryProblem{.op = kernels::Binary::add,
                                           .rows = partition.parts() - 1,
                                           .cols = static_cast<uint32_t>(std::min(summed, 1e9))},
                             m)
                            .chosen.total();
  return batch_candidate(partition, m, codelet_of(p).cost({fields, params}, m), reduction_seconds,
                         scratch_floats(p, samples) * sizeof(float));
}

}  // namespace

uint32_t NeuronsOperand::rows(const NeuronsProblem& problem) const {
  switch (kind) {
    case Kind::sequence: return problem.steps;
    case Kind::dynamics: return 3;
    case Kind::initial: return 2;
    case Kind::recurrent: break;
  }
  return problem.recurrence == Recurrence::one_to_one ? 1 : problem.neurons;
}

std::span<const NeuronsOperand> neurons_operands(bool gradients) {
  using O = NeuronsOperands;
  using enum NeuronsOperand::Kind;
  static constexpr NeuronsOperand kForward[] = {
      {"in", &O::in, sequence},
      {"recurrent", &O::recurrent, recurrent},
      {"dynamics", &O::dynamics, dynamics},
      {"initial", &O::initial, initial},
      {"spikes", &O::spikes, sequence, true},
      {"currents", &O::currents, sequence, true},
      {"potentials", &O::potentials, sequence, true},
      {"membranes", &O::membranes, sequence, true},
  };
  static constexpr NeuronsOperand kBackward[] = {
      {"potentials", &O::potentials, sequence},
      {"currents", &O::currents, sequence},
      {"recurrent", &O::recurrent, recurrent},
      {"dynamics", &O::dynamics, dynamics},
      {"initial", &O::initial, initial},
      {"dspikes", &O::dspikes, sequence},
      {"dcurrents", &O::dcurrents, sequence},
      {"dpotentials", &O::dpotentials, sequence},
      {"dmembranes", &O::dmembranes, sequence},
      {"din", &O::din, sequence, true},
      {"drecurrent", &O::drecurrent, recurrent, true},
      {"ddynamics", &O::ddynamics, dynamics, true},
      {"dinitial", &O::dinitial, initial, true},
  };
  if (gradients) return kBackward;
  return kForward;
}

SpikingPlan plan_neurons(const NeuronsProblem& problem, const NeuronsOperands& operands,
                         const Machine& machine) {
  check(problem);
  if (machine.kind != machine::Kind::host)
    throw UsageError(fmt::format("neurons that take currents run on hosts, not on {}", machine.name));
  return plan_batch(problem.batch, 1, machine, [&](const BatchPartition& partition) {
    return evaluate(problem, operands, partition, machine);
  });
}

StepId build_neurons(const Builder& builder, const NeuronsProblem& problem, const SpikingPlan& plan,
                     const NeuronsOperands& operands) {
  check(problem);
  check_operands(builder, problem, operands);
  BatchFields batch(builder, plan.partition, scratch_floats(problem, plan.partition.most_samples()));
  std::vector<program::Field> fields;
  for (const NeuronsOperand& of : neurons_operands(problem.gradients)) {
    const std::optional<Operand>& operand = operands.*of.operand;
    if (!operand || of.has_samples())
      fields.push_back(batch.columns(operand));
    else if (of.is_result)
      fields.push_back(batch.summed(std::string(of.name), *operand));
    else
      fields.push_back(BatchFields::whole(*operand));
  }
  fields.push_back(batch.scratch());
  std::vector<StepId> steps = {
      builder.execute(batch.vertices(codelet_of(problem), std::move(fields), params_of(problem)))};
  batch.add_up(steps);
  return builder.sequence(std::move(steps));
}

}  // namespace tessera::ops
