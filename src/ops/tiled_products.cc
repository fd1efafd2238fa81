#include "ops/tiled_products.h"

namespace tessera::ops {

DenseShape dense_shape(const Pattern& p, const TiledSpmmProblem& problem) {
  const TiledNumbers numbers = problem.numbers();
  switch (problem.product) {
    case Product::input_gradient: return {p.cols, p.rows, problem.n, numbers, {"W.values", "dY", "dX"}};
    case Product::weight_gradient: return {p.rows, problem.n, p.cols, numbers, {"dY", "X", "dW"}};
    default: return {p.rows, p.cols, problem.n, numbers};
  }
}

DynamicShape dynamic_shape(const Pattern& p, const TiledSpmmProblem& problem) {
  return {p.rows, p.cols, problem.n, p.block_size, *problem.capacity, problem.numbers(), problem.product};
}

StaticProduct::StaticProduct(const Pattern& pattern, const TiledSpmmProblem& problem,
                             const machine::Machine& m, const StaticCut& forward)
    : pattern_(pattern), problem_(problem), machine_(m) {
  if (problem.product == Product::forward) return;
  values_ = value_layout(pattern, forward, m.tiles);
  if (problem.product == Product::weight_gradient) return;
  transposed_ = sparse::transpose(pattern);
  lent_ = lend(values_, transposed_);
}

std::vector<Expected<StaticCut>> StaticProduct::cuts(Planner planner, const StaticCut& forced) const {
  return is_sampled() ? sampled_cuts(sampled_shape(), planner, machine_, forced)
                      : static_cuts(shape(), planner, machine_, forced);
}

TiledSpmmProgram StaticProduct::build(const StaticCut& cut) const {
  TiledSpmmProgram out;
  if (is_sampled()) {
    SampledProgram built = build_sampled(sampled_shape(), cut, machine_);
    out.program = std::move(built.program);
    out.variables = {built.dw, built.x, built.dy, 0, 0};
    out.block_order = values_.order;
    return out;
  }
  StaticProgram built = build_static(shape(), cut, machine_);
  const bool forward = problem_.product == Product::forward;
  out.program = std::move(built.program);
  out.variables = forward ? SpmmVariables{built.values, built.x, built.y, 0, 0}
                          : SpmmVariables{built.values, built.y, built.x, 0, 0};
  out.block_order = std::move(built.block_order);
  return out;
}

StaticShape StaticProduct::shape() const {
  if (problem_.product == Product::forward) return {pattern_, problem_.n, problem_.numbers()};
  return {transposed_.pattern, problem_.n, problem_.numbers(), &lent_};
}

}  // namespace tessera::ops
