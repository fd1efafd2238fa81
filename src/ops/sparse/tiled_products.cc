#include "ops/sparse/tiled_products.h"

namespace tessera::ops {

DenseShape dense_shape(const Pattern& p, const TiledSpmmProblem& problem) {
  const TiledNumbers numbers = problem.numbers();
  switch (problem.product) {
    case Product::input_gradient: return {p.cols, p.rows, problem.n, numbers, {"W.values", "dY", "dX"}};
    case Product::sddmm: return {p.rows, problem.n, p.cols, numbers, {"dY", "X", "dW"}};
    default: return {p.rows, p.cols, problem.n, numbers};
  }
}

DynamicShape dynamic_shape(const Pattern& p, const TiledSpmmProblem& problem) {
  return {p.rows, p.cols, problem.n, p.block_size, *problem.capacity, problem.numbers(), problem.product};
}

StaticProduct::StaticProduct(const Pattern& pattern, const TiledSpmmProblem& problem,
                             const machine::Machine& m, const StaticPartition& forward)
    : pattern_(pattern), problem_(problem), machine_(m) {
  if (problem.product == Product::forward) return;
  values_ = value_layout(pattern, forward, m.tiles);
  if (problem.product == Product::sddmm) return;
  transposed_ = sparse::transpose(pattern);
  aliased_ = alias_values(values_, transposed_);
}

std::vector<Expected<StaticPartition>> StaticProduct::partitions(Planner planner,
                                                                 const StaticPartition& forced) const {
  return is_sddmm() ? sddmm_partitions(sddmm_shape(), planner, machine_, forced)
                    : static_partitions(shape(), planner, machine_, forced);
}

TiledSpmmProgram StaticProduct::build(const StaticPartition& partition) const {
  TiledSpmmProgram out;
  if (is_sddmm()) {
    StaticSddmmProgram built = build_static_sddmm(sddmm_shape(), partition, machine_);
    out.program = std::move(built.program);
    out.variables = {built.dw, built.x, built.dy, 0, 0};
    out.block_order = values_.order;
    return out;
  }
  StaticProgram built = build_static(shape(), partition, machine_);
  const bool forward = problem_.product == Product::forward;
  out.program = std::move(built.program);
  out.variables = forward ? SpmmVariables{built.values, built.x, built.y, 0, 0}
                          : SpmmVariables{built.values, built.y, built.x, 0, 0};
  out.block_order = std::move(built.block_order);
  return out;
}

StaticShape StaticProduct::shape() const {
  if (problem_.product == Product::forward) return {pattern_, problem_.n, problem_.numbers()};
  return {transposed_.pattern, problem_.n, problem_.numbers(), &aliased_};
}

}  // namespace tessera::ops
