#include "ops/tiles/kinds.h"

namespace tessera::ops {

using program::Role;

DenseShape DenseProduct::shape(bool mirrored) const {
  const TiledNumbers numbers = problem_.numbers();
  const Pattern& p = pattern_;
  if (!mirrored && problem_.product == Product::input_gradient) return {p.cols, p.rows, problem_.n, numbers};
  if (!mirrored && problem_.product == Product::sddmm) return {p.rows, problem_.n, p.cols, numbers};
  return {p.rows, p.cols, problem_.n, numbers, problem_.product};
}

ProductLayouts DenseProduct::layouts(const DensePartition& partition) const {
  auto [left, right, result, none] = dense_layouts(shape(partition.mirrored), partition);
  if (partition.mirrored || problem_.product == Product::forward) return {left, right, result};
  if (problem_.product == Product::input_gradient) {
    left.transposed = true;
    return {left, result, right};
  }
  right.transposed = true;
  return {result, right, left};
}

program::StepId DenseProduct::build(const Builder& builder, const DensePartition& partition,
                                    const ProductOperands& operands) const {
  ProductOperands by_role = operands;
  if (!partition.mirrored && problem_.product == Product::input_gradient)
    std::swap(by_role.x, by_role.y);
  else if (!partition.mirrored && problem_.product == Product::sddmm)
    std::swap(by_role.values, by_role.y);
  return build_dense(builder, shape(partition.mirrored), partition, by_role);
}

DynamicShape dynamic_shape(const Pattern& p, const ProductProblem& problem) {
  return {p.rows, p.cols, problem.n, p.block_size, *problem.capacity, problem.numbers(), problem.product};
}

ProductLayouts dynamic_layouts(const DynamicShape& shape, const DynamicGrid& grid, uint32_t tiles) {
  const uint32_t buckets = grid.tiling.partitions();
  return {
      {buckets * grid.tiling.bucket_blocks, shape.block_size * shape.block_size, bucket_value_mapping(grid)},
      matrix_layout(shape.k, shape.n, program::map_linearly(shape.k, shape.n, tiles)),
      matrix_layout(shape.m, shape.n, program::map_linearly(shape.m, shape.n, tiles)),
      {buckets, grid.bucket_words, bucket_metadata_mapping(grid)}};
}

StaticProduct::StaticProduct(const Pattern& pattern, const ProductProblem& problem, const machine::Machine& m,
                             const StaticPartition& forward)
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

PartLayout StaticProduct::deal(const StaticPartition& partition) const {
  return {is_sddmm() ? pattern_ : shape().pattern, partition, problem_.n};
}

ProductLayouts StaticProduct::layouts(const PartLayout& parts) const {
  const auto matrix = [&](uint32_t rows) {
    return matrix_layout(rows, problem_.n, program::map_linearly(rows, problem_.n, machine_.tiles));
  };
  const bool own = problem_.product == Product::forward;
  OperandLayout values{static_cast<uint32_t>(pattern_.blocks()), pattern_.block_size * pattern_.block_size,
                       own ? parts.value_mapping(pattern_.block_size, machine_.tiles) : values_.mapping};
  values.blocks = own ? parts.parts().order : values_.order;
  return {std::move(values), matrix(pattern_.cols), matrix(pattern_.rows)};
}

program::StepId StaticProduct::build(const Builder& builder, const PartLayout& parts,
                                     const ProductOperands& operands) const {
  return is_sddmm() ? build_static_sddmm(builder, sddmm_shape(), parts, operands)
                    : build_static(builder, shape(), parts, operands);
}

StaticShape StaticProduct::shape() const {
  if (problem_.product == Product::forward) return {pattern_, problem_.n, problem_.numbers()};
  return {transposed_.pattern, problem_.n, problem_.numbers(), &aliased_};
}

ProductOperands add_external(const Builder& builder, const ProductProblem& problem,
                             const ProductLayouts& layouts) {
  const bool is_sddmm = problem.product == Product::sddmm;
  const bool is_dx = problem.product == Product::input_gradient;
  const bool is_forward = problem.product == Product::forward;
  const auto role = [](bool is_result) { return is_result ? Role::output : Role::input; };
  ProductOperands operands;
  operands.values =
      builder.external(is_sddmm ? "dW" : "W.values", role(is_sddmm), problem.type, layouts.values);
  operands.x = builder.external(is_dx ? "dX" : "X", role(is_dx), problem.type, layouts.x);
  operands.y = builder.external(is_forward ? "Y" : "dY", role(is_forward), problem.type, layouts.y);
  if (problem.capacity)
    operands.metadata = builder.external("W.metadata", Role::input, Type::u16, layouts.metadata);
  return operands;
}

}  // namespace tessera::ops
