#include "lower/weights/host_dense.h"

#include "ops/dense/host/host_dense.h"

namespace tessera::graph {
namespace {

ops::HostDenseProblem host_dense_problem_of(const ops::PanelLayout& panels, Type type,
                                            const LinearCall& call) {
  return {.m = panels.m,
          .k = panels.k,
          .n = call.n,
          .product = call.product,
          .weights = type,
          .values = type,
          .activation = call.activation,
          .bias = call.bias.has_value(),
          .relu = call.mask.has_value(),
          .adds = call.adds,
          .window = call.window};
}

ops::HostDenseOperands operands_of(const LinearCall& call) {
  return {.w = call.values, .x = call.x, .y = call.y, .bias = call.bias, .relu = call.mask};
}

}  // namespace

program::StepId HostDenseWeight::add(const ops::Builder& builder, const LinearCall& call) {
  const ops::HostDenseProblem problem = host_dense_problem_of(panels_, type_, call);
  return build_host_dense(builder, problem, plan_host_dense(problem, builder.machine()), operands_of(call));
}

std::optional<program::StepId> HostDenseWeight::add_updating(const ops::Builder& builder,
                                                             const LinearCall& call,
                                                             const LinearUpdate& update) {
  const ops::HostDenseProblem problem = host_dense_problem_of(panels_, type_, call);
  return build_host_dense_strips(builder, problem, plan_host_dense(problem, builder.machine()),
                                 operands_of(call), {update.operation, 0, update.operands});
}

}  // namespace tessera::graph
