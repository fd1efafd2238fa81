#include "ops/map/optimizer.h"

#include "kernels/common/element.h"
#include "kernels/map/optimizer/codelet.h"
#include "ops/types.h"

namespace tessera::ops {
namespace {

using kernels::param_of;
using program::Role;

template <class Problem>
MapOperation step_of(const Problem& p, const program::Codelet& codelet) {
  require_float(p.weight, "an optimizer's step");
  require_float(p.gradient, "an optimizer's step");
  MapOperation operation{.codelet = &codelet, .rows = p.rows, .cols = p.cols};
  operation.operands = {{"gradient", p.gradient, Role::input, p.rows, p.cols}};
  return operation;
}

MapOperand scalar(const char* name, Type type) { return {name, type, Role::input, 1, 1, false, false}; }

void add_moments(MapOperation& operation, const AdamProblem& p) {
  for (const char* moment : {"first_moment", "second_moment"})
    operation.operands.push_back({moment, Type::f32, Role::inout, p.rows, p.cols});
}

void check_numbers(const AdamProblem& p) {
  if (!(p.epsilon > 0))
    throw UsageError(
        fmt::format("Adam's epsilon is {}: it must be positive, or elements without a gradient become "
                    "NaN",
                    p.epsilon));
  for (float beta : {p.beta1, p.beta2})
    if (!(beta >= 0 && beta < 1))
      throw UsageError(
          fmt::format("Adam's betas are {} and {}: they must be at least 0 and below 1", p.beta1, p.beta2));
}

}  // namespace

MapOperation operation_of(const SgdProblem& p) {
  const bool has_velocity = p.momentum != 0;
  if (p.nesterov && !has_velocity) throw UsageError("Nesterov's momentum needs a momentum that is not 0");
  MapOperation operation = step_of(p, has_velocity ? kernels::momentum_codelet : kernels::sgd_codelet);
  operation.operands.push_back(scalar("lr", Type::f32));
  if (has_velocity) operation.operands.push_back({"velocity", Type::f32, Role::inout, p.rows, p.cols});
  operation.operands.push_back({"weight", p.weight, Role::inout, p.rows, p.cols});
  operation.params = {param_of(p.decay)};
  if (has_velocity)
    operation.params.insert(operation.params.end(), {param_of(p.momentum), p.nesterov, p.lr_in_velocity});
  return operation;
}

MapOperation operation_of(const AdamProblem& p) {
  check_numbers(p);
  MapOperation operation = step_of(p, kernels::adam_codelet);
  operation.operands.push_back(scalar("lr", Type::f32));
  operation.operands.push_back(scalar("step", Type::u32));
  add_moments(operation, p);
  operation.operands.push_back({"weight", p.weight, Role::inout, p.rows, p.cols});
  operation.params = {param_of(p.decay),   param_of(p.beta1), param_of(p.beta2),
                      param_of(p.epsilon), p.decoupled,       p.bias_correction};
  return operation;
}

MapOperation direction_of(const AdamProblem& p) {
  check_numbers(p);
  MapOperation operation = step_of(p, kernels::adam_direction_codelet);
  operation.operands.push_back(scalar("lr", Type::f32));
  operation.operands.push_back(scalar("step", Type::u32));
  operation.operands.push_back({"weight", p.weight, Role::input, p.rows, p.cols});
  add_moments(operation, p);
  operation.operands.push_back({"direction", Type::f32, Role::output, p.rows, p.cols});
  operation.params = {param_of(p.decay), param_of(p.beta1), param_of(p.beta2), param_of(p.epsilon),
                      p.bias_correction};
  return operation;
}

}  // namespace tessera::ops
