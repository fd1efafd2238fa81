#include "ops/reduce.h"

#include "kernels/element.h"
#include "kernels/reduce/codelet.h"
#include "ops/types.h"

namespace tessera::ops {
namespace {

using program::Role;

GridOperation operation_of(const ReduceProblem& p) {
  require_float(p.from, "a reduction");
  require_float(p.to, "a reduction");
  GridOperation operation{.codelet = &kernels::reduce_sum_codelet,
                          .phase = program::Phase::reduce,
                          .rows = 1,
                          .cols = p.elements};
  operation.operands = {{"partials", p.from, Role::input, p.partials, p.elements, false, true},
                        {"out", p.to, Role::output, 1, p.elements}};
  operation.params = {kernels::param_of(p.scale)};
  return operation;
}

}  // namespace

GridPlan plan(const ReduceProblem& problem, const machine::Machine& machine) {
  return plan_grid(operation_of(problem), machine);
}

BuiltOperation build(program::Program& program, const ReduceProblem& problem, const GridPlan& plan,
                     const machine::Machine& machine) {
  return build_grid(program, operation_of(problem), plan, machine);
}

}  // namespace tessera::ops
