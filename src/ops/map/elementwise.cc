#include "ops/map/elementwise.h"

#include "kernels/common/element.h"
#include "kernels/map/elementwise/codelet.h"
#include "ops/types.h"

namespace tessera::ops {
namespace {

using program::Role;

MapOperation operation_of(const UnaryProblem& p) {
  require_float(p.type, "an elementwise operation");
  MapOperation operation{.codelet = &kernels::codelet_of(p.op), .rows = p.rows, .cols = p.cols};
  operation.operands = {{"in", p.type, Role::input, p.rows, p.cols},
                        {"out", p.type, Role::output, p.rows, p.cols}};
  if (p.op == kernels::Unary::scale) operation.params = {kernels::param_of(p.factor)};
  return operation;
}

MapOperation operation_of(const BinaryProblem& p) {
  require_float(p.type, "an elementwise operation");
  MapOperation operation{.codelet = &kernels::codelet_of(p.op), .rows = p.rows, .cols = p.cols};
  operation.operands = {{"a", p.type, Role::input, p.rows, p.cols},
                        {"b", p.type, Role::input, p.rows, p.cols},
                        {"out", p.type, Role::output, p.rows, p.cols}};
  return operation;
}

}  // namespace

MapPlan plan(const UnaryProblem& problem, const machine::Machine& machine) {
  return plan_map(operation_of(problem), machine);
}

MapPlan plan(const BinaryProblem& problem, const machine::Machine& machine) {
  return plan_map(operation_of(problem), machine);
}

BuiltOperation build(program::Program& program, const UnaryProblem& problem, const MapPlan& plan,
                     const machine::Machine& machine) {
  return build_map(program, operation_of(problem), plan, machine);
}

BuiltOperation build(program::Program& program, const BinaryProblem& problem, const MapPlan& plan,
                     const machine::Machine& machine) {
  return build_map(program, operation_of(problem), plan, machine);
}

}  // namespace tessera::ops
