#include "model/weights/host_dense.h"

#include "ops/dense/host/host_dense.h"

namespace tessera::model {
namespace {

ops::HostDenseProblem problem_of(const ops::PanelLayout& panels, Type type, const LinearCall& call) {
  return {.m = panels.m,
          .k = panels.k,
          .n = call.n,
          .product = call.product,
          .weights = type,
          .values = type,
          .activation = call.activation,
          .bias = call.bias.has_value(),
          .relu = call.mask.has_value()};
}

ops::HostDenseOperands operands_of(const LinearCall& call) {
  return {.w = call.values, .x = call.x, .y = call.y, .bias = call.bias, .relu = call.mask};
}

}  // namespace

program::StepId HostDenseWeight::add(const ops::Builder& builder, const LinearCall& call) {
  const ops::HostDenseProblem problem = problem_of(panels_, type_, call);
  return build_host_dense(builder, problem, plan_host_dense(problem, builder.machine()), operands_of(call));
}

std::optional<program::StepId> HostDenseWeight::add_updating(const ops::Builder& builder,
                                                             const LinearCall& call,
                                                             const LinearUpdate& update) {
  const ops::HostDenseProblem problem = problem_of(panels_, type_, call);
  return build_host_dense_strips(builder, problem, plan_host_dense(problem, builder.machine()),
                                 operands_of(call), {update.operation, 0, update.operands});
}

std::vector<float> HostDenseWeight::store(std::span<const float> values) const {
  std::vector<float> stored(panels_.elements());
  panels_.store(MatrixView<const float>{values.data(), panels_.k, 1}, stored.data());
  return stored;
}

std::vector<float> HostDenseWeight::load(std::span<const float> stored) const {
  std::vector<float> values(uint64_t{panels_.m} * panels_.k);
  panels_.load(stored.data(), MatrixView<float>{values.data(), panels_.k, 1});
  return values;
}

}  // namespace tessera::model
