#include <fmt/format.h>
#include <tessera/error.h>

#include <utility>

#include "ops/batch_fields.h"
#include "ops/structured/host/codelets.h"
#include "ops/structured/host/host.h"

namespace tessera::ops {
namespace {

using machine::Machine;
using program::FieldView;
using program::PhaseTimes;

// Kernels process samples in vectors; a part has whole ones.
constexpr uint32_t kGrain = 16;

/// The bias added to samples of y, or summed from those of dy.
PhaseTimes bias_cycles(const StructuredProblem& p, uint32_t samples, const Machine& m) {
  if (!p.bias || (p.gradients && !p.parameter_gradients)) return {};
  StructuredProblem part = p;
  part.batch = samples;
  const uint32_t outputs = features_of(p.structure).outputs;
  const FieldView y = field_of(part.rows(outputs), part.cols(outputs));
  const ParameterMatrix of = bias_matrix(p);
  const FieldView bias = field_of(of.rows, of.cols);
  const MapOperation operation = bias_operation(part);
  const std::vector<FieldView> fields = p.gradients ? std::vector{y, bias} : std::vector{y, bias, y};
  return operation.codelet->cost({fields, operation.params}, m);
}

PhaseTimes cycles_of(const StructuredProblem& p, uint32_t samples, const Machine& m) {
  StructuredProblem part = p;
  part.batch = samples;
  const StructuredCodelet codelet = codelet_of(p, samples);
  const auto [inputs, outputs] = features_of(p.structure);
  const FieldView x = field_of(part.rows(inputs), part.cols(inputs)),
                  y = field_of(part.rows(outputs), part.cols(outputs));
  std::vector<FieldView> fields = {x};
  if (p.gradients) fields.push_back(y);
  const std::vector<ParameterMatrix> parameters = parameter_matrices(p.structure);
  for (const ParameterMatrix& of : parameters) fields.push_back(field_of(of.rows, of.cols));
  for (const StructuredConstant& constant : codelet.constants)
    fields.push_back(field_of(constant.rows, constant.cols, Type::u32));
  if (!p.gradients) fields.push_back(y);
  if (p.gradients) fields.push_back(p.input_gradient ? x : FieldView{});
  for (const ParameterMatrix& of : parameters)
    if (p.gradients) fields.push_back(p.parameter_gradients ? field_of(of.rows, of.cols) : FieldView{});
  fields.push_back(field_of(1, static_cast<uint32_t>(codelet.scratch_floats)));
  PhaseTimes cycles = codelet.codelet->cost({fields, codelet.params}, m);
  cycles += bias_cycles(p, samples, m);
  return cycles;
}

/// Seconds in which the parts' gradients of the parameters are added.
double reduction_seconds(const StructuredProblem& p, uint32_t parts, const Machine& m) {
  if (!p.gradients || !p.parameter_gradients) return 0;
  std::vector<ParameterMatrix> matrices = parameter_matrices(p.structure);
  if (p.bias) matrices.push_back(bias_matrix(p));
  double seconds = 0;
  for (const ParameterMatrix& of : matrices) seconds += seconds_to_add_up(parts, of.rows, of.cols, m);
  return seconds;
}

PlanCandidate evaluate(const StructuredProblem& p, const BatchPartition& partition, const Machine& m) {
  const uint32_t samples = partition.most_samples();
  return batch_candidate(partition, m, cycles_of(p, samples, m), reduction_seconds(p, partition.parts(), m),
                         codelet_of(p, samples).scratch_floats * sizeof(float));
}

}  // namespace

StructuredPlan plan_on_host(const StructuredProblem& problem, const Machine& machine) {
  if (problem.type != Type::f32)
    throw UsageError(fmt::format("a {} of {} is not possible on a host: use f32", name_of(problem.structure),
                                 name_of(problem.type)));
  Plan<BatchPartition> plan =
      plan_batch(problem.batch, kGrain, machine,
                 [&](const BatchPartition& partition) { return evaluate(problem, partition, machine); });
  return {std::move(plan.partition), std::move(plan.chosen), std::move(plan.candidates)};
}

}  // namespace tessera::ops
