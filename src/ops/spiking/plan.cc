#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>

#include "ops/spiking/fields.h"

namespace tessera::ops {
namespace {

using kernels::SpikingShape;
using machine::Machine;
using program::FieldView;
using program::PhaseTimes;

PhaseTimes cycles_of(const SpikingProblem& problem, uint32_t samples, const Machine& m) {
  SpikingProblem part = problem;
  part.batch = samples;
  const SpikingShape shape = shape_of(problem, samples);
  const SpikingResults r = results_of(part);
  const FieldView weight =
      field_of(kernels::spiking_panel_rows(shape), kernels::spiking_panel_width(shape.neurons));
  const FieldView dynamics = field_of(3, shape.neurons),
                  list = field_of(shape.steps, samples * shape.in_capacity);
  std::vector<FieldView> fields = {list, field_of(shape.steps, 2 * samples, Type::u32), weight, dynamics};
  const std::vector<int64_t> params = params_of(problem, 0);
  if (!problem.gradients) {
    fields.push_back(field_of(control_of(problem)));
    fields.push_back(field_of(1, 1));
    for (const SpikingMatrix* of :
         {&r.ids, &r.num, &r.surrogate, &r.resets, &r.potentials, &r.currents, &r.dropped})
      fields.push_back(field_of(*of));
    fields.push_back(field_of(1, 1));
    return kernels::spiking_forward_codelet.cost({fields, params}, m);
  }
  for (const SpikingMatrix* of : {&r.ids, &r.num, &r.surrogate, &r.resets, &r.potentials, &r.currents})
    fields.push_back(field_of(*of));
  fields.push_back(field_of(upstream_of(part)));
  fields.push_back(problem.input_gradient ? list : FieldView{});
  fields.push_back(weight);
  fields.push_back(problem.learns_dynamics ? dynamics : FieldView{});
  fields.push_back(field_of(1, 1));
  return kernels::spiking_gradients_codelet.cost({fields, params}, m);
}

/// Seconds in which the parts' gradients of the parameters are added.
double reduction_seconds(const SpikingProblem& p, uint32_t parts, const Machine& m) {
  if (!p.gradients) return 0;
  const SpikingShape shape = shape_of(p, p.batch);
  return seconds_to_add_up(parts, kernels::spiking_panel_rows(shape),
                           kernels::spiking_panel_width(shape.neurons), m);
}

PlanCandidate evaluate(const SpikingProblem& p, const BatchPartition& partition, const Machine& m) {
  const SpikingShape shape = shape_of(p, partition.most_samples());
  const uint64_t scratch =
      p.gradients ? kernels::spiking_gradients_scratch(shape) : kernels::spiking_forward_scratch(shape);
  return batch_candidate(partition, m, cycles_of(p, shape.batch, m),
                         reduction_seconds(p, partition.parts(), m), scratch * sizeof(float));
}

// Kernels number the steps of a sequence in 16 bits.
constexpr uint32_t kMostSteps = 1U << 16;

}  // namespace

void check(const SpikingProblem& p) {
  parameters_of(p.layer);
  if (p.steps == 0 || p.batch == 0 || p.steps >= kMostSteps)
    throw UsageError(
        fmt::format("a spiking layer has {} steps and {} samples; there must be 1 to {} steps, and a "
                    "sample",
                    p.steps, p.batch, kMostSteps - 1));
  if (p.in_capacity == 0 || p.in_capacity > p.layer.inputs)
    throw UsageError(fmt::format("lists of {} inputs have room for {}; it must be 1 to {}", p.layer.inputs,
                                 p.in_capacity, p.layer.inputs));
  if (p.capacity > p.layer.neurons)
    throw UsageError(fmt::format("lists of {} neurons have room for {}; they need no more than all",
                                 p.layer.neurons, p.capacity));
  // Kernels number the places of lists, and the gradients of a sample, in 32 bits; rows of potentials, and of
  // counts, have as many columns.
  const uint64_t places = uint64_t{p.steps} * p.batch * std::max(p.in_capacity, p.room());
  const uint64_t gradients = (uint64_t{p.steps} + 1) * p.layer.neurons * (p.layer.recurrent ? 1 : 0);
  const uint64_t columns = uint64_t{p.batch} * std::max(p.layer.neurons, 2U);
  if (std::max({places, gradients, columns}) >> 32 != 0)
    throw UsageError(
        fmt::format("lists of {} steps, {} samples and {} neurons are too long: take fewer samples", p.steps,
                    p.batch, std::max(p.in_capacity, p.layer.neurons)));
  if (p.expected_inputs < 0 || p.expected_listed < 0)
    throw UsageError("expected means of spikes must not be negative");
}

SpikingShape shape_of(const SpikingProblem& p, uint32_t samples) {
  return {.steps = p.steps,
          .batch = samples,
          .inputs = p.layer.inputs,
          .neurons = p.layer.neurons,
          .in_capacity = p.in_capacity,
          .capacity = p.room(),
          .recurrent = p.layer.recurrent};
}

std::vector<int64_t> params_of(const SpikingProblem& p, uint32_t first_sample) {
  std::vector<int64_t> params = {p.in_capacity, p.room(), p.layer.delay};
  for (const int64_t value : kernels::spiking_params(p.layer.neuron, p.layer.recurrent).values)
    params.push_back(value);
  params.insert(params.end(), {p.operation, first_sample, std::llround(std::ceil(p.expected_inputs)),
                               std::llround(std::ceil(p.expected_listed))});
  return params;
}

SpikingResults results_of(const SpikingProblem& p) {
  const SpikingLayer& layer = p.layer;
  const Neuron& neuron = layer.neuron;
  const SpikingMatrix values{Type::f32, p.steps, p.batch * layer.neurons};
  const bool learns = p.trains && p.learns_dynamics;
  SpikingResults r;
  if (!neuron.spikes) {
    r.potentials = values;
  } else {
    const bool to_zero = neuron.reset == Reset::zero || neuron.reset == Reset::late_zero;
    const bool gates = to_zero && neuron.reset_gradient != ResetGradient::detached;
    const bool attaches = neuron.reset == Reset::zero && neuron.reset_gradient == ResetGradient::attached;
    r.ids = {Type::u16, p.steps, p.batch * p.room()};
    r.num = {Type::u32, p.steps, p.batch * 2};
    r.dropped = {Type::u32, p.batch, 2};
    if (p.trains) r.surrogate = {Type::f32, p.steps, p.batch * p.room()};
    if (p.trains && (gates || (learns && neuron.reset != Reset::none)))
      r.resets = {Type::u8, p.steps, p.batch * ((layer.neurons + 7) / 8)};
    if (learns || (p.trains && attaches)) r.potentials = values;
  }
  if (learns && neuron.synaptic) r.currents = values;
  return r;
}

SpikingMatrix upstream_of(const SpikingProblem& p) {
  return {Type::f32, p.steps, p.batch * (p.layer.neuron.spikes ? p.room() : p.layer.neurons)};
}

SpikingMatrix control_of(const SpikingProblem& p) {
  return {Type::u32, 1, uint32_t{kernels::spiking_control::count} + p.substream_words};
}

SpikingPlan plan_spiking(const SpikingProblem& problem, const Machine& machine) {
  check(problem);
  if (machine.kind != machine::Kind::host)
    throw UsageError(fmt::format("spiking layers run on hosts, not on {}", machine.name));
  return plan_batch(problem.batch, 1, machine,
                    [&](const BatchPartition& partition) { return evaluate(problem, partition, machine); });
}

}  // namespace tessera::ops
