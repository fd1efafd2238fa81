#include "ops/structured/structured.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include "base/memo.h"
#include "ops/structured/host/host.h"
#include "ops/structured/tiles/structured.h"

namespace tessera::ops {
namespace {

void check_operands(const Builder& builder, const StructuredProblem& p, const StructuredOperands& o) {
  const auto [inputs, outputs] = features_of(p.structure);
  const auto samples = [&](const Operand& operand, std::string_view name, uint32_t features) {
    builder.require(operand, name, p.type, p.rows(features), p.cols(features));
  };
  samples(o.x, "x", inputs);
  samples(o.y, p.gradients ? "dy" : "y", outputs);
  if (o.dx.has_value() != (p.gradients && p.input_gradient))
    throw UsageError(o.dx ? "the product has no dx, so it takes no operand for one"
                          : "the product has a dx; pass its operand");
  if (o.dx) samples(*o.dx, "dx", inputs);

  const std::vector<StructuredParameter> parameters = parameters_of(p.structure);
  const std::vector<ParameterMatrix> matrices = parameter_matrices(p.structure);
  const size_t gradients = p.gradients && p.parameter_gradients ? parameters.size() : 0;
  if (o.parameters.size() != parameters.size() || o.parameter_gradients.size() != gradients)
    throw UsageError(fmt::format("a {} has {} parameters and here {} gradients of them; given are {} and {}",
                                 name_of(p.structure), parameters.size(), gradients, o.parameters.size(),
                                 o.parameter_gradients.size()));
  for (size_t i = 0; i < parameters.size(); ++i) {
    builder.require(o.parameters[i], parameters[i].name, p.type, matrices[i].rows, matrices[i].cols);
    if (i < gradients)
      builder.require(o.parameter_gradients[i], fmt::format("the gradient of {}", parameters[i].name), p.type,
                      matrices[i].rows, matrices[i].cols);
  }
  if (o.bias.has_value() != (p.bias && !p.gradients) ||
      o.bias_gradient.has_value() != (p.bias && gradients > 0))
    throw UsageError("the operands have a bias where the product has none, or the reverse");
  const ParameterMatrix bias = bias_matrix(p);
  if (o.bias) builder.require(*o.bias, "the bias", p.type, bias.rows, bias.cols);
  if (o.bias_gradient)
    builder.require(*o.bias_gradient, "the gradient of the bias", p.type, bias.rows, bias.cols);
}

/// What a plan depends on.
struct StructuredKey {
  StructuredProblem problem;
  machine::Machine machine;

  bool operator==(const StructuredKey& other) const {
    return problem == other.problem && machine.is_like(other.machine);
  }
};

}  // namespace

StructuredPlan plan_structured(const StructuredProblem& problem, const machine::Machine& machine) {
  if (problem.batch == 0) throw UsageError("a batch of a structured map has no samples");
  parameters_of(problem.structure);  // throws for impossible sizes
  if (problem.bias && machine.kind != machine::Kind::host)
    throw UsageError(fmt::format("a structured map with a bias runs on hosts, not on '{}'", machine.name));
  constexpr size_t kMost = 64;
  static base::Memo<StructuredKey, StructuredPlan> plans(kMost);
  return plans.get({problem, machine}, [&] {
    return machine.kind == machine::Kind::host ? plan_on_host(problem, machine)
                                               : plan_on_tiles(problem, machine);
  });
}

StructuredOperands external_operands(const Builder& builder, const StructuredProblem& problem,
                                     const std::vector<program::MappedBox>& parameter_mapping) {
  using program::Purpose, program::Role;
  const auto [inputs, outputs] = features_of(problem.structure);
  const auto samples = [&](const char* name, Role role, uint32_t features) {
    return builder.external(name, role, problem.type, problem.rows(features), problem.cols(features));
  };
  const auto matrix = [&](std::string name, Role role, const ParameterMatrix& of,
                          const std::vector<program::MappedBox>& mapping = {}) {
    return builder.external(std::move(name), role, problem.type, of.rows, of.cols, mapping,
                            role == Role::input ? Purpose::parameter : Purpose::gradient);
  };
  const auto parameters = [&](std::string_view prefix, Role role) {
    std::vector<Operand> all;
    for (const ParameterMatrix& of : parameter_matrices(problem.structure))
      all.push_back(matrix(fmt::format("{}{}", prefix, all.size()), role, of, parameter_mapping));
    return all;
  };
  StructuredOperands o{
      .x = samples("x", Role::input, inputs),
      .y = problem.gradients ? samples("dy", Role::input, outputs) : samples("y", Role::output, outputs),
      .parameters = parameters("parameter", Role::input)};
  if (problem.bias && !problem.gradients) o.bias = matrix("bias", Role::input, bias_matrix(problem));
  if (problem.gradients && problem.input_gradient) o.dx = samples("dx", Role::output, inputs);
  if (!problem.gradients || !problem.parameter_gradients) return o;
  o.parameter_gradients = parameters("dparameter", Role::output);
  if (problem.bias) o.bias_gradient = matrix("dbias", Role::output, bias_matrix(problem));
  return o;
}

program::StepId build_structured(const Builder& builder, const StructuredProblem& problem,
                                 const StructuredPlan& plan, const StructuredOperands& operands) {
  check_operands(builder, problem, operands);
  if (const auto* batch = std::get_if<BatchPartition>(&plan.partition))
    return build_on_host(builder, problem, *batch, operands);
  return build_on_tiles(builder, problem, plan.partition, operands);
}

}  // namespace tessera::ops
