#include "ops/cast.h"

#include "kernels/cast/codelet.h"
#include "ops/types.h"

namespace tessera::ops {
namespace {

using program::Role;

GridOperation operation_of(const CastProblem& p) {
  require_float(p.from, "a cast");
  require_float(p.to, "a cast");
  GridOperation operation{.codelet = &kernels::cast_codelet, .rows = p.rows, .cols = p.cols};
  operation.operands = {{"in", p.from, Role::input, p.rows, p.cols},
                        {"out", p.to, Role::output, p.rows, p.cols}};
  return operation;
}

}  // namespace

GridPlan plan(const CastProblem& problem, const machine::Machine& machine) {
  return plan_grid(operation_of(problem), machine);
}

BuiltOperation build(program::Program& program, const CastProblem& problem, const GridPlan& plan,
                     const machine::Machine& machine) {
  return build_grid(program, operation_of(problem), plan, machine);
}

}  // namespace tessera::ops
