#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <utility>

#include "kernels/map/elementwise/codelet.h"
#include "ops/map/elementwise.h"
#include "ops/structured/host/codelets.h"
#include "ops/structured/host/host.h"

namespace tessera::ops {
namespace {

using machine::Machine;
using program::FieldView;
using program::PhaseTimes;

// Kernels process samples in vectors; a part has whole ones.
constexpr uint32_t kGrain = 16;

FieldView field(uint32_t rows, uint32_t cols, Type type = Type::f32) {
  return {nullptr, type, rows, cols, cols, 1};
}

/// The bias added to samples of y, or summed from those of dy.
PhaseTimes bias_cycles(const StructuredProblem& p, uint32_t samples, const Machine& m) {
  if (!p.bias || (p.gradients && !p.parameter_gradients)) return {};
  StructuredProblem part = p;
  part.batch = samples;
  const uint32_t outputs = features_of(p.structure).outputs;
  const FieldView y = field(part.rows(outputs), part.cols(outputs));
  const ParameterMatrix of = bias_matrix(p);
  const FieldView bias = field(of.rows, of.cols);
  const MapOperation operation = bias_operation(part);
  const std::vector<FieldView> fields = p.gradients ? std::vector{y, bias} : std::vector{y, bias, y};
  return operation.codelet->cost({fields, operation.params}, m);
}

PhaseTimes cycles_of(const StructuredProblem& p, uint32_t samples, const Machine& m) {
  StructuredProblem part = p;
  part.batch = samples;
  const StructuredCodelet codelet = codelet_of(p, samples);
  const auto [inputs, outputs] = features_of(p.structure);
  const FieldView x = field(part.rows(inputs), part.cols(inputs)),
                  y = field(part.rows(outputs), part.cols(outputs));
  std::vector<FieldView> fields = {x};
  if (p.gradients) fields.push_back(y);
  const std::vector<ParameterMatrix> parameters = parameter_matrices(p.structure);
  for (const ParameterMatrix& of : parameters) fields.push_back(field(of.rows, of.cols));
  for (const StructuredConstant& constant : codelet.constants)
    fields.push_back(field(constant.rows, constant.cols, Type::u32));
  if (!p.gradients) fields.push_back(y);
  if (p.gradients) fields.push_back(p.input_gradient ? x : FieldView{});
  for (const ParameterMatrix& of : parameters)
    if (p.gradients) fields.push_back(p.parameter_gradients ? field(of.rows, of.cols) : FieldView{});
  fields.push_back(field(1, static_cast<uint32_t>(codelet.scratch_floats)));
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
  for (; parts > 1; parts = (parts + 1) / 2)
    for (const ParameterMatrix& of : matrices)
      seconds +=
          plan(BinaryProblem{.op = kernels::Binary::add, .rows = parts / 2 * of.rows, .cols = of.cols}, m)
              .chosen.total();
  return seconds;
}

PlanCandidate weigh(const StructuredProblem& p, const BatchPartition& partition, const Machine& m) {
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
                 [&](const BatchPartition& partition) { return weigh(problem, partition, machine); });
  return {std::move(plan.partition), std::move(plan.chosen), std::move(plan.candidates)};
}

}  // namespace tessera::ops
